package replica

import (
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/wal"
)

// work calls do for every token in wake until the replica stops or do fails, and says where.
func (r *Replica) work(wake <-chan struct{}, do func() (Stage, error)) {
	for {
		select {
		case <-r.stop:
			return
		case <-wake:
		}
		if r.stopped() {
			return
		}
		if stage, err := do(); err != nil {
			r.fail(stage, err)
			return
		}
	}
}

// appendDesk is what the append worker owns.
type appendDesk struct {
	vote   datadir.Vote // as last made durable in Votes
	frames []wal.Frame  // the buffer of appendQueued
	count  uint64       // frames written
}

func (r *Replica) runAppend() {
	r.work(r.appends.wake, func() (Stage, error) { return r.appendFrames(r.appends.take(nil)) })
}

// appendFrames is group commit: whatever queued up during the last sync becomes one write and at
// most one sync, and is handed back only then. The votes are older than the log: the newest of the
// queued votes is durable before any of the frames, so no crash leaves a vote in the log that the
// votes do not know. The loop keeps queued.
func (r *Replica) appendFrames(queued []*consensus.Append) (Stage, error) {
	d := &r.append
	if len(queued) == 0 {
		return "", nil
	}
	sync, vote := false, d.vote
	for _, a := range queued {
		sync = sync || a.Sync()
		vote = datadir.Vote{Term: a.HardState.GetTerm(), Vote: a.HardState.GetVote()}
		d.frames = append(d.frames, wal.Frame{HardState: a.HardState, Entries: a.Entries})
	}
	if vote != d.vote && !mutantVotesSkipped {
		if err := r.opts.Votes.SetVote(r.opts.Group, vote); err != nil {
			return StageVotes, fmt.Errorf("record vote for member %d in term %d: %w", vote.Vote, vote.Term, err)
		}
		d.vote = vote
	}
	if err := r.opts.Log.Append(d.frames, sync); err != nil && !mutantAppendErrorIgnored {
		return StageLog, fmt.Errorf("append %d frames: %w", len(d.frames), err)
	}
	clear(d.frames)
	d.frames = d.frames[:0]
	if d.count += uint64(len(queued)); sync {
		r.synced.Store(d.count)
	}
	r.inbox.put(appendReport(queued))
	return "", nil
}

// applyDesk is what the apply worker owns.
type applyDesk struct {
	unflushed int64 // bytes of payload applied since the flusher was woken
}

// run is one run of the machine on its way through state.
type run struct {
	apply *consensus.Apply
	state *apply.Run
}

func (r *Replica) runApply() {
	r.work(r.applies.wake, func() (Stage, error) {
		if r.stateless.Load() != nil {
			return "", nil
		}
		return r.applyRuns(r.applies.take(nil))
	})
}

// applyRuns puts everything queued into state as one batch: at most Limits.Consensus.ApplyBytes,
// because the machine hands out no more before some came back.
func (r *Replica) applyRuns(queued []*consensus.Apply) (Stage, error) {
	if len(queued) == 0 {
		return "", nil
	}
	start := time.Now()
	runs := make(applyReport, len(queued))
	states := make([]*apply.Run, len(queued))
	for i, a := range queued {
		states[i] = &apply.Run{Entries: a.Entries}
		runs[i] = &run{apply: a, state: states[i]}
	}
	first, last := runs[0].first(), runs[len(runs)-1].last()
	if err := r.opts.Apply.Apply(states); err != nil {
		return StageState, fmt.Errorf("apply entries %d to %d: %w", first, last, err)
	}
	for _, x := range runs {
		for _, c := range x.state.Conf {
			x.apply.Conf = append(x.apply.Conf, consensus.ConfApplied{Change: c.Change, Want: c.State, Refused: c.Refused})
		}
		for _, e := range x.apply.Entries {
			r.apply.unflushed += int64(len(e.GetData()))
		}
	}
	r.metrics.applySeconds.Observe(time.Since(start).Seconds())
	r.metrics.applyEntries.Observe(float64(last - first + 1))
	r.observe(runs) // before a message can go out under a new roster
	r.applied.advance(last)
	r.inbox.put(runs)
	if r.apply.unflushed >= r.opts.Limits.FlushBytes {
		r.apply.unflushed = 0
		poke(r.flush)
	}
	return "", nil
}

func (x *run) last() uint64 { return x.apply.Entries[len(x.apply.Entries)-1].GetIndex() }

// observe tells observers of what is in state now.
func (r *Replica) observe(runs []*run) {
	o := r.opts.Observe
	for _, x := range runs {
		if x.state.Roster != nil && o.OnRoster != nil {
			o.OnRoster(x.last(), *x.state.Roster)
		}
		if o.OnApplied != nil {
			o.OnApplied(x.applied())
		}
		if len(x.state.Checks) > 0 && o.OnChecks != nil {
			o.OnChecks(x.state.Checks)
		}
		if len(x.state.Deliveries) > 0 && o.OnDeliver != nil {
			o.OnDeliver(x.state.Deliveries)
		}
	}
}

// applied is what observers receive of x.
func (x *run) applied() []command.Applied {
	all := make([]command.Applied, len(x.apply.Entries))
	for i, e := range x.apply.Entries {
		a := command.Applied{ID: ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}, Outcomes: x.outcomes(e.GetIndex())}
		if e.GetType() == pb.EntryNormal {
			a.Payload = e.GetData()
			a.Stamp, _ = command.StampOf(a.Payload)
		}
		all[i] = a
	}
	return all
}

// outcomes returns what became of the writes in entry index, in order; nil if x does not hold it.
func (x *run) outcomes(index uint64) []command.Outcome {
	if index < x.first() || index-x.first() >= uint64(len(x.state.Outcomes)) {
		return nil
	}
	return x.state.Outcomes[index-x.first()]
}

// refused returns why x did not accept the membership change or the roster in entry id, or nil.
func (x *run) refused(id ident.EntryID) error {
	if slices.Contains(x.state.RostersRefused, id.Index) {
		return &ChangeRefusedError{ID: id, Detail: "the roster does not follow the one in force"}
	}
	for _, c := range x.state.Conf {
		if c.Index == id.Index && c.Refused {
			return &ChangeRefusedError{ID: id, Detail: c.Detail}
		}
	}
	return nil
}

func (x *run) first() uint64 { return x.apply.Entries[0].GetIndex() }

// runFlush moves the flushed index forward, so that a restart replays little and the log may be
// shortened: after FlushBytes, and after FlushEvery if anything was applied.
func (r *Replica) runFlush() {
	ticker := time.NewTicker(r.opts.FlushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-ticker.C:
		case <-r.flush:
		}
		if err := r.flushApplied(); err != nil {
			r.fail(StageState, err)
			return
		}
	}
}

// flushApplied flushes if anything was applied since the last flush.
func (r *Replica) flushApplied() error {
	if r.stateless.Load() != nil || r.opts.State.FlushedIndex() >= r.applied.get() {
		return nil
	}
	if _, err := r.opts.State.Flush(); err != nil {
		return fmt.Errorf("flush state: %w", err)
	}
	return nil
}
