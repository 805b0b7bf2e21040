package apply

import (
	"fmt"

	"go.etcd.io/raft/v3/confchange"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// nextConf returns the configuration that raft will be in after change, or why raft would refuse it
// (by a panic: so it must not be told). The decision is raft's own, of package confchange, and depends
// on the arguments alone.
func nextConf(now *pb.ConfState, change *pb.ConfChangeV2) (*pb.ConfState, error) {
	if t := change.GetTransition(); t < pb.ConfChangeTransitionAuto || t > pb.ConfChangeTransitionJointExplicit {
		return nil, fmt.Errorf("unknown transition %d", t)
	}
	// Progress is made up: only who is in it matters here.
	changer := confchange.Changer{Tracker: tracker.MakeProgressTracker(1, 0), LastIndex: 1}
	cfg, progress, err := confchange.Restore(changer, now)
	if err != nil {
		return nil, fmt.Errorf("restore configuration: %w", err)
	}
	changer.Tracker.Config, changer.Tracker.Progress = cfg, progress

	switch autoLeave, joint := change.EnterJoint(); {
	case change.LeaveJoint():
		cfg, _, err = changer.LeaveJoint()
	case joint:
		cfg, _, err = changer.EnterJoint(autoLeave, change.GetChanges()...)
	default:
		cfg, _, err = changer.Simple(change.GetChanges()...)
	}
	if err != nil {
		return nil, err
	}
	changer.Tracker.Config = cfg
	return changer.Tracker.ConfState(), nil
}
