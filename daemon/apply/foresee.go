package apply

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/membership"
)

// Foresee returns the membership that a group will have once entries, which follow conf and roster, are
// applied: what Apply would make of them, without a state. Entries that say nothing of it are not looked
// into.
func Foresee(conf *pb.ConfState, roster membership.Roster, entries []*pb.Entry) (*pb.ConfState, membership.Roster, error) {
	for _, e := range entries {
		var err error
		switch e.GetType() {
		case pb.EntryNormal:
			roster, err = foreseeRoster(roster, e)
		default:
			conf, roster, err = foreseeConf(conf, roster, e)
		}
		if err != nil {
			return nil, membership.Roster{}, fmt.Errorf("entry %d/%d: %w", e.GetTerm(), e.GetIndex(), err)
		}
	}
	return conf, roster, nil
}

func foreseeRoster(now membership.Roster, e *pb.Entry) (membership.Roster, error) {
	entry, err := command.Decode(e.GetData())
	if err != nil || entry.Kind != command.KindRoster {
		return now, err
	}
	next, err := membership.DecodeRoster(entry.Roster)
	if err != nil || next.Version != now.Version+1 {
		return now, err
	}
	return next, nil
}

func foreseeConf(conf *pb.ConfState, roster membership.Roster, e *pb.Entry) (*pb.ConfState, membership.Roster, error) {
	change, err := decodeConfChange(e)
	if err != nil {
		return nil, roster, err
	}
	next := roster
	record := change.GetContext()
	if len(record) > 0 {
		if next, err = membership.DecodeRoster(record); err != nil {
			return nil, roster, err
		}
	}
	after, refused := nextConf(conf, change)
	if refused != nil || len(record) > 0 && next.Version != roster.Version+1 {
		return conf, roster, nil
	}
	return after, next, nil
}
