package membership

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Members a, b, c are declared in this order; a has incarnation 1, and so on.
func declared(names ...string) (d []Declared) {
	for _, n := range names {
		d = append(d, Declared{Name: n, GRPCAddr: n + ":1", HTTPAddr: n + ":2"})
	}
	return d
}

func incOf(name string) ident.Incarnation { return inc(name[0] - 'a' + 1) }

func fresh(name string) Answer {
	return Answer{Kind: AnswerFresh, Name: name, Incarnation: incOf(name), Topology: [32]byte{7}}
}

// abc is the genesis of the three, changed by edit.
func abc(edit ...func(*Genesis)) Genesis {
	g := Genesis{Topology: [32]byte{7}}
	for i, d := range declared("a", "b", "c") {
		g.Members = append(g.Members, Member{ID: ident.MemberID(i + 1), Incarnation: incOf(d.Name), Name: d.Name,
			GRPCAddr: d.GRPCAddr, HTTPAddr: d.HTTPAddr, Role: RoleVoter, Capabilities: ident.CapBase})
	}
	for _, e := range edit {
		e(&g)
	}
	return g
}

func initialised(name string, g Genesis) Answer {
	return Answer{Kind: AnswerInitialised, Name: name, Incarnation: incOf(name), Genesis: g.Encode()}
}

func lostA(g *Genesis)    { g.Members[0].Incarnation = inc(99) }
func lostB(g *Genesis)    { g.Members[1].Incarnation = inc(98) }
func withoutA(g *Genesis) { g.Members[0].Name = "z" }

func TestDecideBirth_Table(t *testing.T) {
	own, other := abc(), abc(func(g *Genesis) { g.Members[2].Incarnation = inc(97) })
	mismatch, copied, elsewhere, unreadable := fresh("c"), fresh("c"), fresh("b"), initialised("b", own)
	mismatch.Topology = [32]byte{8}
	copied.Incarnation = incOf("b")
	elsewhere.Name = "q"
	unreadable.Genesis = unreadable.Genesis[:20]
	foreign := abc(withoutA)

	for _, tc := range []struct {
		name     string
		self     string
		genesis  *Genesis
		led      bool
		declared []Declared // default: a, b, c
		answers  map[string]Answer
		seeds    []Answer
		want     string // act, then what belongs to it
	}{
		// Genesis.
		{name: "alone", self: "a", declared: declared("a"), want: "make as 1: a"},
		{name: "first, all fresh", self: "a", answers: map[string]Answer{"b": fresh("b"), "c": fresh("c")}, want: "make as 1: a b c"},
		{name: "first, nobody answers", self: "a", answers: nil, want: "wait b (no answer), c (no answer)"},
		{name: "first, one is silent", self: "a", answers: map[string]Answer{"b": fresh("b"), "c": {Detail: "timeout"}},
			want: "wait c (no answer: timeout)"},
		{name: "second, all fresh", self: "b", answers: map[string]Answer{"a": fresh("a"), "c": fresh("c")},
			want: "wait a (makes the genesis: it is declared first)"},
		{name: "second, first is silent", self: "b", answers: map[string]Answer{"c": fresh("c")}, want: "wait a (no answer)"},
		{name: "an address leads elsewhere", self: "a", answers: map[string]Answer{"b": elsewhere, "c": fresh("c")},
			want: `wait b (its address answers as "q")`},
		{name: "two members with one incarnation", self: "a", answers: map[string]Answer{"b": fresh("b"), "c": copied},
			want: "wait b (incarnation 02020202020202020202020202020202 is not its own: was a data directory copied?), " +
				"c (incarnation 02020202020202020202020202020202 is not its own: was a data directory copied?)"},
		{name: "another file", self: "a", answers: map[string]Answer{"c": mismatch},
			want: "refuse topology_mismatch: c read a topology file with digest 08" + strings.Repeat("00", 31) +
				", this member one with 07" + strings.Repeat("00", 31)},
		{name: "own file without own name", self: "d", answers: map[string]Answer{"a": fresh("a")},
			want: "refuse not_declared: the topology file has no member named d"},

		// Adoption.
		{name: "a genesis has us", self: "b", answers: map[string]Answer{"a": initialised("a", own)}, want: "adopt as 2: a b c"},
		{name: "only the last has it", self: "b", answers: map[string]Answer{"a": fresh("a"), "c": initialised("c", own)}, want: "adopt as 2: a b c"},
		{name: "two have the same", self: "c", answers: map[string]Answer{"a": initialised("a", own), "b": initialised("b", own)}, want: "adopt as 3: a b c"},
		{name: "one cluster has us, a stranger does not", self: "a",
			answers: map[string]Answer{"b": initialised("b", foreign), "c": initialised("c", own)}, want: "adopt as 1: a b c"},
		{name: "two clusters have us", self: "a", answers: map[string]Answer{"b": initialised("b", own), "c": initialised("c", other)},
			want: "refuse genesis_conflict: clusters " + own.ClusterID().String() + " and " + other.ClusterID().String() + " both have this member as a first voter"},
		{name: "another file, but we are in the genesis", self: "b",
			answers: map[string]Answer{"a": initialised("a", own), "c": mismatch}, want: "adopt as 2: a b c"},
		{name: "first, lost its disk", self: "a", answers: map[string]Answer{"b": initialised("b", abc(lostA)), "c": fresh("c")},
			want: "refuse lost_disk: a is member 1 of cluster " + abc(lostA).ClusterID().String() +
				" with incarnation " + inc(99).String() + ", this data directory has " + incOf("a").String()},
		{name: "not in the genesis", self: "a", answers: map[string]Answer{"b": initialised("b", foreign), "c": fresh("c")},
			want: "refuse not_declared: cluster " + foreign.ClusterID().String() + ", which b belongs to, was born without a member named a"},
		{name: "a seed that is not declared has us", self: "b", seeds: []Answer{initialised("q", own)}, want: "adopt as 2: a b c"},
		{name: "a seed that is fresh", self: "b", seeds: []Answer{fresh("q")}, want: "wait a (no answer), c (no answer)"},
		{name: "a seed of a cluster without us", self: "a", seeds: []Answer{initialised("q", foreign)},
			want: "refuse not_declared: cluster " + foreign.ClusterID().String() + ", which q belongs to, was born without a member named a"},
		{name: "a genesis that cannot be read", self: "a", answers: map[string]Answer{"b": unreadable, "c": fresh("c")},
			want: "wait b (its genesis record cannot be read)"},

		// Data is there.
		{name: "serves alone", self: "b", genesis: &own, answers: nil, want: "serve"},
		{name: "serves though all others are fresh", self: "b", genesis: &own,
			answers: map[string]Answer{"a": fresh("a"), "c": fresh("c")}, want: "serve"},
		{name: "one other genesis is no majority", self: "a", genesis: &own, answers: map[string]Answer{"b": initialised("b", other)}, want: "serve"},
		{name: "outvoted before its first leader", self: "a", genesis: &own,
			answers: map[string]Answer{"b": initialised("b", other), "c": initialised("c", other)},
			want: "refuse genesis_conflict: this member was born into cluster " + own.ClusterID().String() +
				" and never had a leader; 2 of its 3 voters are in cluster " + other.ClusterID().String()},
		{name: "two, each in another cluster, are no majority", self: "a", genesis: &own,
			answers: map[string]Answer{"b": initialised("b", other), "c": initialised("c", abc(lostB))}, want: "serve"},
		{name: "had a leader", self: "a", genesis: &own, led: true,
			answers: map[string]Answer{"b": initialised("b", other), "c": initialised("c", other)}, want: "serve"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.declared == nil {
				tc.declared = declared("a", "b", "c")
			}
			in := Birth{Name: tc.self, Incarnation: incOf(tc.self), Genesis: tc.genesis, HadLeader: tc.led,
				Declared: tc.declared, Topology: [32]byte{7}, Answers: tc.answers, Seeds: tc.seeds}
			answers := maps.Clone(tc.answers)
			d := DecideBirth(in)
			if got := sentence(d); got != tc.want {
				t.Errorf("DecideBirth = %q\nwant          %q", got, tc.want)
			}
			if !reflect.DeepEqual(answers, tc.answers) {
				t.Error("DecideBirth changed the answers")
			}
			if d.Act == BirthMake || d.Act == BirthAdopt {
				if got, err := DecodeGenesis(d.Genesis.Encode()); err != nil || !reflect.DeepEqual(got, d.Genesis) {
					t.Errorf("the genesis is no valid record: %+v, %v", got, err)
				}
			}
		})
	}
}

// sentence prints everything that a decision says.
func sentence(d BirthDecision) string {
	var names, waits []string
	for _, m := range d.Genesis.Members {
		names = append(names, m.Name)
	}
	for _, w := range d.Waiting {
		waits = append(waits, w.Name+" ("+w.Reason+")")
	}
	switch d.Act {
	case BirthWait:
		return "wait " + strings.Join(waits, ", ")
	case BirthMake:
		return "make as " + d.ID.String() + ": " + strings.Join(names, " ")
	case BirthAdopt:
		return "adopt as " + d.ID.String() + ": " + strings.Join(names, " ")
	case BirthServe:
		return "serve"
	}
	return "refuse " + d.Refusal.Error()
}

// Three fresh members that ask each other in any order end up in one cluster.
func TestDecideBirth_OneGenesis(t *testing.T) {
	all := declared("a", "b", "c")
	for _, order := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a", "c"}} {
		held := map[string]*Genesis{}
		for range 2 {
			for _, self := range order {
				if held[self] != nil {
					continue
				}
				answers := map[string]Answer{}
				for _, m := range all {
					if answers[m.Name] = fresh(m.Name); held[m.Name] != nil {
						answers[m.Name] = initialised(m.Name, *held[m.Name])
					}
				}
				d := DecideBirth(Birth{Name: self, Incarnation: incOf(self), Declared: all, Topology: [32]byte{7}, Answers: answers})
				if d.Act == BirthMake || d.Act == BirthAdopt {
					held[self] = &d.Genesis
				}
			}
		}
		for _, m := range all {
			if held[m.Name] == nil || held[m.Name].ClusterID() != held["a"].ClusterID() {
				t.Errorf("order %v: member %s has genesis %+v", order, m.Name, held[m.Name])
			}
		}
	}
}
