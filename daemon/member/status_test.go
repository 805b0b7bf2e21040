package member

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/wal"
)

func TestCauseOf_SaysWhatIsWrongAndNotWhereItWasMet(t *testing.T) {
	io := errors.New("input/output error")
	met := func(stage replica.Stage, err error) error {
		return &replica.FailedError{Stage: stage, Err: fmt.Errorf("in passing: %w", err)}
	}
	for _, tc := range []struct {
		name string
		err  error
		want Cause
	}{
		{"a write of the log", met(replica.StageLog, io), CauseLogWrite},
		{"a write of the votes", met(replica.StageVotes, io), CauseLogWrite},
		{"a write of the state", met(replica.StageState, io), CauseStateError},
		{"a contradiction", met(replica.StageMachine, &consensus.FatalError{Cause: errors.New("frame 2 handed back after 0")}), CauseAssertion},
		{"damage met while the log is opened", &wal.CorruptError{}, CauseLogCorrupt},
		{"damage met while a follower is served", met(replica.StageLog, &consensus.LogError{Err: &wal.CorruptError{}}), CauseLogCorrupt},
		{"a disk that went back in time", met(replica.StageMachine, &consensus.FatalError{Cause: &consensus.LostEntriesError{}}), CauseAmnesia},
		{"a log shorter than the state", &consensus.BootError{}, CauseCommittedMissing},
		{"a group that is gone", &datadir.LostGroupError{}, CauseCommittedMissing},
		{"an unknown record", met(replica.StageState, &command.UnknownKindError{}), CauseUpgradeRequired},
		{"a log of a newer format", &wal.VersionError{}, CauseUpgradeRequired},
		{"a state of a newer format", &stateError{&durable.VersionError{}}, CauseUpgradeRequired},
		{"a marker that is damaged", &durable.CorruptError{}, CauseLogCorrupt},
		{"a row that is damaged", met(replica.StageState, &durable.CorruptError{}), CauseStateError},
		{"a state that is damaged", &stateError{&durable.CorruptError{}}, CauseStateError},
		{"old votes", &replica.VotesBehindError{}, CauseVotesBehind},
	} {
		if got := causeOf(tc.err); got != tc.want {
			t.Errorf("%s: causeOf(%v) = %s, want %s", tc.name, tc.err, got, tc.want)
		}
	}
}

// A reseed brings data back, not promises: where votes may be forgotten, none heals.
func TestCause_NoReseedHealsForgottenVotes(t *testing.T) {
	for _, c := range []Cause{CauseAmnesia, CauseVotesBehind} {
		if c.healable() {
			t.Errorf("%s is healable", c)
		}
	}
}
