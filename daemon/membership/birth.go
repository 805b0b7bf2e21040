package membership

import (
	"cmp"
	"fmt"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Declared is one member as the topology file names it.
type Declared struct {
	Name     string
	GRPCAddr string
	HTTPAddr string
}

// AnswerKind says what came of asking another member.
type AnswerKind uint8

const (
	AnswerNone        AnswerKind = iota // it did not answer; the zero Answer
	AnswerFresh                         // it never belonged to a cluster
	AnswerInitialised                   // it belongs to one
)

// Answer is what one declared member answered, in this process life and to this incarnation. It is
// never taken from a third member and never kept across a restart.
type Answer struct {
	Kind        AnswerKind
	Name        string // what the member calls itself
	Incarnation ident.Incarnation
	Topology    [32]byte // digest of the file it read; of a fresh member
	Genesis     []byte   // its encoded genesis record; of an initialised one
	Detail      string   // AnswerNone: why
}

// Birth is everything that DecideBirth looks at.
type Birth struct {
	Name        string
	Incarnation ident.Incarnation
	// Genesis is the record in this member's data directory; nil: fresh.
	Genesis *Genesis
	// HadLeader: since its birth this member has heard from a leader. Only read if Genesis is set.
	HadLeader bool
	// Declared are the members of the topology file, in its order, this one among them. A member
	// without such a file declares itself alone.
	Declared []Declared
	Topology [32]byte
	Answers  map[string]Answer // by declared name
	// Seeds answered beside them: members that the file need not declare.
	Seeds []Answer
}

// BirthAct is what a member does next.
type BirthAct uint8

const (
	BirthWait   BirthAct = iota // ask again; Waiting says for whom
	BirthMake                   // write Genesis down as its maker, start as voter ID
	BirthAdopt                  // write the Genesis of another member down, start as voter ID
	BirthServe                  // open the data that is there; asks nobody
	BirthRefuse                 // do nothing; Refusal says why. It may be cured from outside: ask again
)

// BirthDecision is the answer of DecideBirth.
type BirthDecision struct {
	Act     BirthAct
	Genesis Genesis        // BirthMake, BirthAdopt
	ID      ident.MemberID // BirthMake, BirthAdopt: this member's
	Waiting []Waiting      // BirthWait: in declared order, at least one
	Refusal *BirthError    // BirthRefuse
}

// Waiting names one member that a birth waits for.
type Waiting struct {
	Name   string
	Reason string
}

// Codes of BirthError.
const (
	BirthTopologyMismatch = "topology_mismatch" // the members read different topology files
	BirthLostDisk         = "lost_disk"         // the cluster knows this name with another incarnation
	BirthNotDeclared      = "not_declared"      // the cluster, or the file, has no such name
	BirthGenesisConflict  = "genesis_conflict"  // there is more than one genesis
)

// BirthError says why a member can neither be born nor go on waiting.
type BirthError struct {
	Code   string
	Detail string
}

func (e *BirthError) Error() string { return e.Code + ": " + e.Detail }

// JoinInstead reports whether a cluster exists that this member was not born with, under this incarnation
// at least: it may ask to be taken as a new member.
func (e *BirthError) JoinInstead() bool {
	return e.Code == BirthLostDisk || e.Code == BirthNotDeclared
}

// DecideBirth returns what a member does, given what it is and what the others answered.
//
//	this member                         | the others                                  | it
//	------------------------------------+---------------------------------------------+------------------------
//	initialised                         | anything                                    | serves
//	initialised, never had a leader     | a majority of its voters has another genesis| refuses genesis_conflict
//	fresh                               | one genesis has its name and incarnation    | adopts it
//	fresh                               | two of them do                              | refuses genesis_conflict
//	fresh                               | a genesis has its name, another incarnation | refuses lost_disk
//	fresh                               | a genesis without its name                  | refuses not_declared
//	fresh, not in its own file          | no genesis                                  | refuses not_declared
//	fresh                               | no genesis, one read another file           | refuses topology_mismatch
//	fresh, declared first               | all fresh                                   | makes the genesis
//	fresh                               | otherwise                                   | waits
//
// Adopting is safe because a member that is fresh never voted nor acknowledged. Waiting while one
// declared member is silent is what keeps two halves of a cluster from being born apart.
func DecideBirth(b Birth) BirthDecision {
	if b.Genesis != nil {
		return b.decideInitialised()
	}
	if d, found := b.findGenesis(); found {
		return d
	}
	return b.decideFresh()
}

// decideInitialised serves, unless this member has been outvoted before it ever took part.
func (b Birth) decideInitialised() BirthDecision {
	if b.HadLeader {
		return BirthDecision{Act: BirthServe}
	}
	own := b.Genesis.ClusterID()
	others := make(map[ident.ClusterID]int)
	for _, m := range b.Genesis.Members {
		a := b.Answers[m.Name]
		if a.Kind != AnswerInitialised || a.Name != m.Name {
			continue
		}
		g, err := DecodeGenesis(a.Genesis)
		if err != nil || g.ClusterID() == own {
			continue
		}
		others[g.ClusterID()]++
		if n := others[g.ClusterID()]; n >= Majority(len(b.Genesis.Members)) {
			return refuse(BirthGenesisConflict, "this member was born into cluster %s and never had a leader; %d of its %d voters are in cluster %s",
				own, n, len(b.Genesis.Members), g.ClusterID())
		}
	}
	return BirthDecision{Act: BirthServe}
}

// findGenesis decides by the genesis records that other members hold. found is false when no record
// can be read.
func (b Birth) findGenesis() (_ BirthDecision, found bool) {
	var adopt, lost, stranger *BirthDecision
	answers := make([]Answer, 0, len(b.Declared)+len(b.Seeds))
	for _, m := range b.others() {
		answers = append(answers, b.Answers[m.Name])
	}
	for _, a := range append(answers, b.Seeds...) {
		if a.Kind != AnswerInitialised {
			continue
		}
		g, err := DecodeGenesis(a.Genesis)
		if err != nil {
			continue // decideFresh waits for it, with the reason
		}
		switch self, in := g.Named(b.Name); {
		case !in:
			d := refuse(BirthNotDeclared, "cluster %s, which %s belongs to, was born without a member named %s", g.ClusterID(), a.Name, b.Name)
			stranger = cmp.Or(stranger, &d)
		case self.Incarnation != b.Incarnation && !mutantLostDiskAdopts:
			d := refuse(BirthLostDisk, "%s is member %d of cluster %s with incarnation %s, this data directory has %s",
				b.Name, self.ID, g.ClusterID(), self.Incarnation, b.Incarnation)
			lost = cmp.Or(lost, &d)
		case adopt != nil && adopt.Genesis.ClusterID() != g.ClusterID():
			return refuse(BirthGenesisConflict, "clusters %s and %s both have this member as a first voter",
				adopt.Genesis.ClusterID(), g.ClusterID()), true
		default:
			adopt = cmp.Or(adopt, &BirthDecision{Act: BirthAdopt, Genesis: g, ID: self.ID})
		}
	}
	if first := cmp.Or(adopt, lost, stranger); first != nil {
		return *first, true
	}
	return BirthDecision{}, false
}

// decideFresh decides among members none of which has a genesis that can be read.
func (b Birth) decideFresh() BirthDecision {
	self := -1
	for i, m := range b.Declared {
		if m.Name == b.Name {
			self = i
		}
	}
	if self < 0 {
		return refuse(BirthNotDeclared, "the topology file has no member named %s", b.Name)
	}
	var waiting []Waiting
	for _, m := range b.others() {
		a := b.Answers[m.Name]
		if a.Kind == AnswerFresh && a.Name == m.Name && a.Topology != b.Topology {
			return refuse(BirthTopologyMismatch, "%s read a topology file with digest %x, this member one with %x", m.Name, a.Topology, b.Topology)
		}
		if why := b.notFresh(m.Name, a); why != "" {
			waiting = append(waiting, Waiting{Name: m.Name, Reason: why})
		}
	}
	switch {
	case len(waiting) > 0:
		return BirthDecision{Act: BirthWait, Waiting: waiting}
	case self > 0:
		first := b.Declared[0].Name
		return BirthDecision{Act: BirthWait, Waiting: []Waiting{{Name: first, Reason: "makes the genesis: it is declared first"}}}
	}
	return b.make()
}

// notFresh says why an answer does not count towards a genesis; empty if it does.
func (b Birth) notFresh(name string, a Answer) string {
	switch {
	case a.Kind == AnswerNone && a.Detail == "":
		return "no answer"
	case a.Kind == AnswerNone:
		return "no answer: " + a.Detail
	case a.Name != name:
		return fmt.Sprintf("its address answers as %q", a.Name)
	case a.Kind == AnswerInitialised:
		return "its genesis record cannot be read"
	case a.Incarnation.IsZero() || b.incarnationTaken(name, a.Incarnation):
		return fmt.Sprintf("incarnation %s is not its own: was a data directory copied?", a.Incarnation)
	}
	return ""
}

// incarnationTaken reports whether a member other than name has this incarnation.
func (b Birth) incarnationTaken(name string, i ident.Incarnation) bool {
	if b.Incarnation == i {
		return true
	}
	for _, m := range b.others() {
		if m.Name != name && b.Answers[m.Name].Incarnation == i {
			return true
		}
	}
	return false
}

// make builds the record. Every declared member has answered fresh.
func (b Birth) make() BirthDecision {
	g := Genesis{Topology: b.Topology}
	for i, m := range b.Declared {
		inc := b.Incarnation
		if m.Name != b.Name {
			inc = b.Answers[m.Name].Incarnation
		}
		g.Members = append(g.Members, Member{
			ID: ident.MemberID(i + 1), Incarnation: inc, Name: m.Name,
			GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr, Role: RoleVoter, Capabilities: ident.CapBase,
		})
	}
	return BirthDecision{Act: BirthMake, Genesis: g, ID: 1}
}

// others are the declared members without this one.
func (b Birth) others() []Declared {
	var others []Declared
	for _, m := range b.Declared {
		if m.Name != b.Name {
			others = append(others, m)
		}
	}
	return others
}

func refuse(code, format string, args ...any) BirthDecision {
	return BirthDecision{Act: BirthRefuse, Refusal: &BirthError{Code: code, Detail: fmt.Sprintf(format, args...)}}
}
