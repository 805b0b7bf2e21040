package sweep

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/wal"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// The sentences of the design on membership (page 4) that were found by breaking a draft, as far as
// what they speak of is built, and the test that holds each:
//
//	identity and votes are outside the generations               TestSentence_AnOldLogTakesNoVoteBack
//	a corrupt member or votes is never absent, never fresh       TestSentence_DamageIsNeverFresh
//	a listed group without a directory is a lost disk            TestSentence_DamageIsNeverFresh
//	a copied directory refuses to start                          TestSentence_ACopyRefusesToStart
//	whoever is behind hears an unknown member of its cluster     TestSentence_WhoIsBehindListens
//	every replica is born at index 1, with a configuration       TestSentence_BornAtIndexOne
//	a new log begins with commit at its base                     TestSentence_BornAtIndexOne
//	no marker, or one to nothing, refuses and is never fresh     TestSentence_DamageIsNeverFresh
//	other generations go only when the current one has opened    TestSentence_LeftoversGoLast
//	the marker is the one commit point                           TestMember_CrashEverywhere
//	commit is raised to what is applied                          TestSentence_CommitIsRaised
//	a log that ends below what is applied is for quarantine      TestSentence_AnOldLogTakesNoVoteBack
//	votes older than the log are an old copy                     TestSentence_OldVotesAreNotUsed
//	an entry comes with its HardState                            TestLeaders_OneATermAfterTwoQuickChanges
//	ConfState is kept whole                                      daemon/state, TestPosition_KeepsTheWholeConfiguration

const groupDir = dataDir + "/groups/0"

// lived returns the disk of a cluster of one that has served and stopped, and what it was told.
func lived(t *testing.T, fs *simfs.FS, k *told, items ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := newRoom(1).boot("m1", fs)
	if err == nil {
		err = k.put(ctx, items, n)
		k.note(n.dir)
		n.stop()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newLived(t *testing.T) (*simfs.FS, *told) {
	t.Helper()
	fs, k := simfs.New(), &told{fates: map[string]fate{}}
	lived(t, fs, k, item("first", 1), item("first", 2))
	return fs, k
}

// quarantine boots fs and returns why group 0 is closed.
func quarantine(t *testing.T, fs *simfs.FS) *member.Quarantine {
	t.Helper()
	n, err := newRoom(1).boot("m1", fs)
	if err != nil {
		t.Fatalf("the process must live: %v", err)
	}
	defer n.stop()
	q := n.Status().Groups[0].Quarantine
	if q == nil {
		t.Fatal("the replica is open")
	}
	return q
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSentence_DamageIsNeverFresh(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		what   string
		damage func(*simfs.FS) error
	}{
		{"member rots", func(fs *simfs.FS) error { return fs.Flip(dataDir+"/member", 40, 3) }},
		{"member is cut", func(fs *simfs.FS) error { return fs.Truncate(dataDir+"/member", 30) }},
		{"member is empty", func(fs *simfs.FS) error { return fs.Truncate(dataDir+"/member", 0) }},
		{"member is gone", func(fs *simfs.FS) error { return fs.Remove(dataDir + "/member") }},
		{"votes are gone", func(fs *simfs.FS) error { return fs.Remove(dataDir + "/votes") }},
		{"votes are empty", func(fs *simfs.FS) error { return fs.Truncate(dataDir+"/votes", 0) }},
		{"the head of votes rots", func(fs *simfs.FS) error { return fs.Flip(dataDir+"/votes", 3, 1) }},
		{"the group is gone", func(fs *simfs.FS) error { return fs.RemoveAll(groupDir) }},
		{"all groups are gone", func(fs *simfs.FS) error { return fs.RemoveAll(dataDir + "/groups") }},
		{"the marker is gone", func(fs *simfs.FS) error { return removeMarkers(fs) }},
		{"the log is gone", func(fs *simfs.FS) error { return fs.RemoveAll(groupDir + "/log-000001") }},
		{"the state is gone", func(fs *simfs.FS) error { return fs.RemoveAll(groupDir + "/state-000001") }},
	} {
		fs, _ := newLived(t)
		do(t, tc.damage(fs))
		before := fs.String()
		n, err := newRoom(1).boot("m1", fs)
		if err == nil {
			n.stop()
			t.Errorf("%s: the member started", tc.what)
			continue
		}
		_, corrupt := errors.AsType[*durable.CorruptError](err)
		_, lost := errors.AsType[*datadir.LostGroupError](err)
		if !corrupt && !lost || !strings.Contains(err.Error(), "tidalctl members replace m1") {
			t.Errorf("%s: %v: want a corrupt file or a lost group, and the way on", tc.what, err)
		}
		if after := fs.String(); after != before {
			t.Errorf("%s: the refusal changed the disk from\n%sto\n%s", tc.what, before, after)
		}
	}
}

func removeMarkers(fs *simfs.FS) error {
	names, err := fs.List(groupDir)
	for _, name := range names {
		if strings.HasPrefix(name, "marker.") {
			err = errors.Join(err, fs.Remove(groupDir+"/"+name))
		}
	}
	return err
}

func TestSentence_ACopyRefusesToStart(t *testing.T) {
	t.Parallel()
	fs, _ := newLived(t)
	do(t, fs.Rename(dataDir, "/srv/old"))
	do(t, fs.CopyTree("/srv/old", dataDir))
	_, err := newRoom(1).boot("m1", fs)
	if _, ok := errors.AsType[*datadir.CopiedError](err); !ok {
		t.Errorf("a copy started with %v", err)
	}
	do(t, fs.RemoveAll(dataDir))
	do(t, fs.Rename("/srv/old", dataDir)) // the same files, by whatever name
	n, err := newRoom(1).boot("m1", fs)
	if err != nil {
		t.Fatalf("the original after it was moved: %v", err)
	}
	n.stop()
}

func TestSentence_WhoIsBehindListens(t *testing.T) {
	t.Parallel()
	n, err := newRoom(1).boot("m1", simfs.New())
	do(t, err)
	defer n.stop()
	mine := n.Roster().Version
	stranger := peer.Hello{Cluster: n.dir.Member().Cluster, Member: 9, Incarnation: ident.Incarnation{9}, RosterVersion: mine + 2}
	if _, refusal := n.Hello(stranger); refusal != nil {
		t.Errorf("a member of a later roster was refused: %v", refusal)
	}
	stranger.RosterVersion = mine
	if _, refusal := n.Hello(stranger); refusal == nil || refusal.Reason != peer.ReasonUnknownMember {
		t.Errorf("an unknown member of the same roster: %v", refusal)
	}
}

func TestSentence_BornAtIndexOne(t *testing.T) {
	t.Parallel()
	fs, _ := newLived(t)
	first := true
	rec, err := wal.Scan(fs, groupDir+"/log-000001", 0, func(f wal.FrameInfo) error {
		if first && len(f.Entries) > 0 && f.Entries[0].ID.Index != 2 {
			t.Errorf("the first entry is %s", f.Entries[0].ID)
		}
		first = first && len(f.Entries) == 0
		return nil
	})
	do(t, err)
	if want := (ident.EntryID{Term: 1, Index: 1}); rec.Base != want {
		t.Errorf("the log begins after %s, want %s", rec.Base, want)
	}
	empty := simfs.New()
	base := ident.EntryID{Term: 3, Index: 100}
	do(t, wal.Create(wal.Options{FS: empty, Dir: logDir}, base, nil))
	l, made, err := wal.Open(wal.Options{FS: empty, Dir: logDir})
	do(t, err)
	defer l.Close()
	if made.HardState.GetCommit() != base.Index {
		t.Errorf("a log made after %s begins with %v", base, made.HardState)
	}
	_, err = consensus.New(consensus.Options{ID: 1, Log: l, HardState: made.HardState, Applied: base, Conf: &pb.ConfState{}})
	if _, ok := errors.AsType[*consensus.BootError](err); !ok {
		t.Errorf("a replica without a voter opened with %v", err)
	}
}

// What an earlier process had half fetched goes at every start, for it was never installed. A generation that is
// not current goes once the current one has opened, and not before.
func TestSentence_LeftoversGoLast(t *testing.T) {
	t.Parallel()
	const incoming = "incoming-abc"
	generation := []string{"state-000002", "log-000002"}
	kept := "kept-20260101-log_corrupt"
	there := func(fs *simfs.FS, name string) bool {
		_, err := fs.Stat(groupDir + "/" + name)
		return err == nil
	}
	for _, sound := range []bool{true, false} {
		fs, k := newLived(t)
		for _, name := range append(slices.Clone(generation), incoming, kept) {
			do(t, fs.CopyTree(groupDir+"/state-000001", groupDir+"/"+name))
		}
		if sound {
			lived(t, fs, k, item("second", 1))
		} else {
			names, err := fs.List(groupDir + "/log-000001")
			do(t, err)
			do(t, fs.Flip(groupDir+"/log-000001/"+names[0], 20, 0))
			if q := quarantine(t, fs); q.Cause != member.CauseLogCorrupt {
				t.Errorf("a log with a damaged header: %+v", q)
			}
		}
		for _, name := range generation {
			if there(fs, name) == sound {
				t.Errorf("current generation sound: %t; %s is there: %t", sound, name, sound)
			}
		}
		if there(fs, incoming) {
			t.Errorf("current generation sound: %t; %s is there", sound, incoming)
		}
		if !there(fs, kept) {
			t.Errorf("%s was removed", kept)
		}
	}
}

// State can be on the disk ahead of the log's word that it is committed: commit alone is not synced.
func TestSentence_CommitIsRaised(t *testing.T) {
	t.Parallel()
	fs := simfs.New()
	base := ident.EntryID{Term: 1, Index: 1}
	do(t, wal.Create(logOptions(fs), base, nil))
	l, _, err := wal.Open(logOptions(fs))
	do(t, err)
	do(t, l.Append([]wal.Frame{{Entries: []*pb.Entry{entry(1, 2, 1), entry(1, 3, 1)}}}, true))
	do(t, l.Append([]wal.Frame{{HardState: hard(1, 0, 3)}}, false)) // remembered
	again, rec, err := wal.Open(logOptions(fs.Crash(simfs.Strict, 0)))
	do(t, err)
	if rec.HardState.GetCommit() != 1 {
		t.Fatalf("commit %d is on the disk: the test proves nothing", rec.HardState.GetCommit())
	}
	m, err := consensus.New(consensus.Options{
		ID: 1, Log: again, HardState: rec.HardState, Applied: ident.EntryID{Term: 1, Index: 3}, Conf: &pb.ConfState{Voters: []uint64{1}},
	})
	if err != nil {
		t.Fatalf("state is ahead of commit: %v", err)
	}
	if got := m.Status().Commit; got != 3 {
		t.Errorf("commit is %d, want what is applied, 3", got)
	}
	do(t, errors.Join(l.Close(), again.Close()))
}

// An old copy of the log under the present state is seen, and what was voted is not forgotten by it.
func TestSentence_AnOldLogTakesNoVoteBack(t *testing.T) {
	t.Parallel()
	fs, k := newLived(t)
	do(t, fs.CopyTree(groupDir+"/log-000001", "/srv/old-log"))
	lived(t, fs, k, item("second", 1), item("second", 2))
	do(t, fs.RemoveAll(groupDir+"/log-000001"))
	do(t, fs.CopyTree("/srv/old-log", groupDir+"/log-000001"))
	if q := quarantine(t, fs); q.Cause != member.CauseCommittedMissing {
		t.Errorf("an old log: %+v", q)
	}
	d, err := openDir("m1", fs)
	do(t, err)
	defer d.Close()
	if got := d.Vote(0); got != k.vote {
		t.Errorf("the vote is %+v, was %+v", got, k.vote)
	}
}

func TestSentence_OldVotesAreNotUsed(t *testing.T) {
	t.Parallel()
	fs, k := newLived(t)
	do(t, fs.CopyTree(dataDir+"/votes", "/srv/old-votes"))
	lived(t, fs, k, item("second", 1))
	do(t, fs.Remove(dataDir+"/votes"))
	do(t, fs.CopyTree("/srv/old-votes", dataDir+"/votes"))
	if q := quarantine(t, fs); q.Cause != member.CauseVotesBehind {
		t.Errorf("old votes: %+v", q)
	}
}
