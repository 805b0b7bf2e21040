package datadir

import (
	"errors"
	"testing"

	"github.com/tidaldb/tidal/daemon/durable"
)

// The table in the comment of decide.
func TestDecide(t *testing.T) {
	t.Parallel()
	here := FileID{Inode: 7, Birth: 8}
	member := func(spoil ...func(*Member)) Member {
		m := Member{Incarnation: incarnation(), Name: "n1", BootEpoch: 1, File: here}
		for _, f := range spoil {
			f(&m)
		}
		return m
	}
	none, some := makeVotes(incarnation()), voted(t, 1)
	other := none
	other.incarnation[0]++
	file := func(id FileID) func(*Member) { return func(m *Member) { m.File = id } }
	use := found{hasMember: true, member: member(), file: here, hasVotes: true, votes: some}
	with := func(f found, change func(*found)) found { change(&f); return f }
	for _, tc := range []struct {
		name  string
		found found
		want  string
	}{
		{"nothing", found{}, "make"},
		{"a first start that died after votes", found{hasVotes: true, votes: none}, "make"},
		{"member lost, a promise is there", found{hasVotes: true, votes: some}, "corrupt member"},
		{"member lost, groups are there", found{hasVotes: true, votes: none, hasGroups: true}, "corrupt member"},
		{"member and votes lost", found{hasGroups: true}, "corrupt member"},
		{"another inode", with(use, func(f *found) { f.file.Inode++ }), "copied"},
		{"an inode used again", with(use, func(f *found) { f.file.Birth++ }), "copied"},
		{"another device", with(use, func(f *found) { f.file.Device++ }), "use"},
		{"births are not told", with(use, func(f *found) { f.file.Birth = 0 }), "use"},
		{"births were not told", with(use, func(f *found) { f.member = member(file(FileID{Inode: 7})) }), "use"},
		{"files were not told apart", with(use, func(f *found) { f.member = member(file(FileID{})) }), "use"},
		{"files are not told apart any more", with(use, func(f *found) { f.file = FileID{} }), "copied"},
		{"another name", with(use, func(f *found) { f.member.Name = "n2" }), "wrong name"},
		{"a copy under another name", with(use, func(f *found) { f.member.Name = "n2"; f.file.Inode++ }), "copied"},
		{"votes lost", with(use, func(f *found) { f.hasVotes, f.votes = false, votes{} }), "corrupt votes"},
		{"votes of another disk", with(use, func(f *found) { f.votes = other }), "corrupt votes"},
		{"a group lost", with(use, func(f *found) { f.lost = []*LostGroupError{{Group: 0}} }), "lost 0"},
		{"all there", use, "use"},
		{"all there, with groups", with(use, func(f *found) { f.hasGroups = true }), "use"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := outcome(decide("n1", tc.found)); got != tc.want {
				t.Errorf("decide = %s, want %s", got, tc.want)
			}
		})
	}
}

func outcome(v verdict, err error) string {
	if e, ok := errors.AsType[*durable.CorruptError](err); ok {
		return "corrupt " + e.File
	}
	if e, ok := errors.AsType[*LostGroupError](err); ok {
		return "lost " + e.Group.String()
	}
	if _, ok := errors.AsType[*CopiedError](err); ok {
		return "copied"
	}
	if _, ok := errors.AsType[*WrongNameError](err); ok {
		return "wrong name"
	}
	if err != nil {
		return err.Error()
	}
	return map[verdict]string{makeAnew: "make", useIt: "use"}[v]
}

func TestGeneration_Parse(t *testing.T) {
	t.Parallel()
	for _, gen := range []Generation{{1, 1}, {2, 30}, {1234567, 999999}} {
		if got, ok := parseGeneration(gen.String()); !ok || got != gen {
			t.Errorf("parseGeneration(%s) = %v, %t", gen, got, ok)
		}
	}
	for _, s := range []string{"", "log-1.state-1", "log-000000.state-000001", "log-000001.state-000001x", "log-000001", "log-+00001.state-000001", "log--00001.state-000001"} {
		if got, ok := parseGeneration(s); ok {
			t.Errorf("parseGeneration(%q) = %v", s, got)
		}
	}
}
