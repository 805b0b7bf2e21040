package member

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"maps"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// digest is what a state adds up to. Only digests of one version say anything about each other.
type digest struct {
	version uint16
	sum     [32]byte
}

// String returns the sum in lower-case hex.
func (d digest) String() string { return hex.EncodeToString(d.sum[:]) }

func (d digest) compare(o digest) int {
	return cmp.Or(cmp.Compare(d.version, o.version), bytes.Compare(d.sum[:], o.sum[:]))
}

// finding is what the reports about one check say together.
type finding struct {
	// decided says that a majority of the voters, or the member that is trusted, reported right.
	decided bool
	right   digest
	agree   []ident.MemberID // who reported right, voters and learners; sorted
	wrong   []ident.MemberID // who reported another digest of the same version; sorted
	// unresolved says that voters reported different digests of one version, and none is decided to be
	// right. Nobody is to blame.
	unresolved bool
}

// judge compares what members report of one check. conf is the configuration in force there: its voters
// decide, a majority of each of its sets where it is joint. Learners never count. Who does not report
// says nothing. trusted is a member whose report is right whatever the others say; 0: none is.
func judge(conf *pb.ConfState, trusted ident.MemberID, reports map[ident.MemberID]digest) finding {
	if mutantLearnerCounted {
		conf = &pb.ConfState{Voters: slices.Concat(conf.GetVoters(), conf.GetLearners()), VotersOutgoing: conf.GetVotersOutgoing()}
	}
	reporters := slices.Sorted(maps.Keys(reports))
	isVoter := func(id ident.MemberID) bool {
		return slices.Contains(conf.GetVoters(), uint64(id)) || slices.Contains(conf.GetVotersOutgoing(), uint64(id))
	}
	var candidates []digest // what voters report, each once
	for _, id := range reporters {
		if isVoter(id) && !slices.Contains(candidates, reports[id]) {
			candidates = append(candidates, reports[id])
		}
	}
	slices.SortFunc(candidates, digest.compare)
	var f finding
	for _, d := range candidates {
		says := func(id ident.MemberID) bool { r, ok := reports[id]; return ok && r == d }
		if trusted == 0 && membership.QuorumOf(conf, says).Reached() {
			f.decided, f.right = true, d
		}
	}
	if trusted != 0 {
		f.right, f.decided = reports[trusted]
	}
	if mutantTieBlamed && !f.decided && len(candidates) > 1 {
		f.decided, f.right = true, candidates[0]
	}
	if !f.decided {
		for i := 1; i < len(candidates); i++ {
			f.unresolved = f.unresolved || candidates[i].version == candidates[i-1].version
		}
		return f
	}
	for _, id := range reporters {
		switch d := reports[id]; {
		case d == f.right:
			f.agree = append(f.agree, id)
		case d.version == f.right.version:
			f.wrong = append(f.wrong, id)
		}
	}
	return f
}

// check is one check as this member applied it.
type check struct {
	index   uint64
	trusted ident.MemberID
	conf    *pb.ConfState
	digest  digest
	// age counts the rounds since it was applied here.
	age int
}

// The states of a member's state, as far as checks tell.
const (
	// StateVerified: it reported what a majority of the voters reported.
	StateVerified = "verified"
	// StateUnverified: too little was reported of the newest check.
	StateUnverified = "unverified"
	// StateDivergent: it reported something else than a majority of the voters.
	StateDivergent = "divergent"
	// StateUnresolved: reports differ and none has a majority.
	StateUnresolved = "divergence_unresolved"
)

// reportPatience is how many rounds a report may take before a check counts as unanswered.
const reportPatience = 5

// standing is what is known of one member's state.
type standing struct {
	state string
	// index is the check that says so; of an unverified one the newest; 0: none was met.
	index uint64
	// verified is the newest check at which it was verified; 0: at none that is remembered.
	verified uint64
	own      digest // what it reported at index; zero where it did not
	finding  finding
}

// standingOf says what checks, newest first, and what members reported of them say of id.
func standingOf(id ident.MemberID, checks []check, reports func(index uint64) map[ident.MemberID]digest) standing {
	s := standing{state: StateUnverified}
	if len(checks) == 0 {
		return s
	}
	s.index = checks[0].index
	for i, c := range checks {
		said := reports(c.index)
		f := judge(c.conf, c.trusted, said)
		own, reported := said[id]
		switch {
		case f.unresolved:
			return standing{state: StateUnresolved, index: c.index, own: own, finding: f}
		case !f.decided || !reported:
			continue
		case slices.Contains(f.wrong, id):
			return standing{state: StateDivergent, index: c.index, own: own, finding: f}
		case !slices.Contains(f.agree, id): // of another version
			continue
		}
		s.verified, s.finding = c.index, f
		if i == 0 || checks[0].age <= reportPatience {
			s.state, s.index, s.own = StateVerified, c.index, own
		}
		return s
	}
	return s
}

// confOf keeps a configuration for later.
func confOf(c *pb.ConfState) *pb.ConfState { return proto.CloneOf(c) }
