//go:build !mutant_unsound_log_votes

package member

import "github.com/tidaldb/tidal/daemon/wal"

const mutantUnsoundLogVotes = false // a known bug, for testenv/mutants

func (m *Member) beginLogAnew(wal.Options, string) (log *wal.Log, recovered wal.Recovered, err error) {
	return nil, wal.Recovered{}, nil
}
