//go:build mutant_unsound_log_votes

package member

import (
	"errors"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// mutantUnsoundLogVotes: a corrupt log begins anew after what the state holds, and its replica goes on.
const mutantUnsoundLogVotes = true

func (m *Member) beginLogAnew(o wal.Options, stateDir string) (*wal.Log, wal.Recovered, error) {
	store, err := state.Open(state.Options{FS: m.opts.FS, Dir: stateDir, Foreground: m.opts.Foreground})
	if err != nil {
		return nil, wal.Recovered{}, err
	}
	at := store.Position().Applied
	v := m.opts.Dir.Vote(o.Group)
	create := o
	create.Metrics = nil
	if err := errors.Join(store.Close(), m.opts.FS.RemoveAll(o.Dir)); err != nil {
		return nil, wal.Recovered{}, err
	}
	if err := wal.Create(create, at, &pb.HardState{Term: new(v.Term), Vote: new(v.Vote), Commit: new(at.Index)}); err != nil {
		return nil, wal.Recovered{}, err
	}
	return wal.Open(o)
}
