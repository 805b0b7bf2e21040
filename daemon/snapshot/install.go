package snapshot

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// Log is what an install wants to know of a log. *wal.Log implements it.
type Log interface {
	LastIndex() uint64
	Term(i uint64) (uint64, error)
}

// Contains reports whether a sound log holds the entry at, or begins right after it: then it stays,
// and nothing that was acknowledged is forgotten. Otherwise it ends before at or has another entry in
// its place, and is replaced: nothing in it can be committed that an artifact at at does not hold.
func Contains(log Log, at ident.EntryID) (bool, error) {
	if at.Index > log.LastIndex() {
		return false, nil
	}
	term, err := log.Term(at.Index)
	if errors.Is(err, raft.ErrCompacted) {
		// at is older than what is in state here: an artifact that helps nobody.
		return false, fmt.Errorf("the log here begins after entry %s of the artifact", at)
	}
	return err == nil && term == at.Term, err
}

// Votes are the promises of a member. *datadir.Dir implements it.
type Votes interface {
	Vote(g ident.GroupID) datadir.Vote
	SetVote(g ident.GroupID, v datadir.Vote) error
}

// Install says what to install.
type Install struct {
	Group    ident.GroupID
	Files    *datadir.Group // of Group
	Votes    Votes
	Artifact *Artifact
	// Term is the highest term that the artifact, or the barrier it was fetched under, comes from: this
	// member takes part in no older one from then on.
	Term uint64
	// NewLog has the log replaced by one that begins after the artifact; otherwise it stays. Its Dir is
	// ignored.
	NewLog *wal.Options
}

// Run makes the artifact the current generation of a group whose replica is closed. Votes come before
// the marker, so that no crash leaves a log that is ahead of them.
func (i Install) Run() (datadir.Generation, error) {
	at := i.Artifact.Manifest.Position.Applied
	vote := i.Votes.Vote(i.Group)
	if term := max(i.Term, i.Artifact.Term, at.Term); term > vote.Term {
		vote = datadir.Vote{Term: term}
		if err := i.Votes.SetVote(i.Group, vote); err != nil {
			return datadir.Generation{}, fmt.Errorf("raise votes to term %d: %w", term, err)
		}
	}
	var newLog func(string) error
	if i.NewLog != nil {
		newLog = func(dir string) error {
			o := *i.NewLog
			o.Dir = dir
			return wal.Create(o, at, &pb.HardState{Term: new(vote.Term), Vote: new(vote.Vote), Commit: new(at.Index)})
		}
	}
	return i.Files.Install(i.Artifact.ID.String(), newLog)
}

// Verify reports whether the state that was opened is the one that the artifact promised.
func (a *Artifact) Verify(p state.Position) error { return a.Manifest.Promises(p) }

// Promises reports whether a state at p is the one that the manifest promises: whether it is the one that was
// staged, if the digest in p was made anew from the pairs of the artifact.
func (m *Manifest) Promises(p state.Position) error {
	want := m.Position
	if p.Applied != want.Applied {
		return fmt.Errorf("installed state is at %s, its manifest says %s", p.Applied, want.Applied)
	}
	if err := p.Conf.Equivalent(want.Conf); err != nil {
		return fmt.Errorf("installed state has another configuration than its manifest: %w", err)
	}
	if p.Digest.Version == want.Digest.Version && !p.Digest.Equal(want.Digest) {
		return fmt.Errorf("installed state has digest %s, its manifest says %s", p.Digest.Total(), want.Digest.Total())
	}
	return nil
}
