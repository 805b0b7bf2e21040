package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidaldb/tidal/tui/theme"
	"github.com/tidaldb/tidal/tui/viewmodel"
)

// Plain draws the screen as lines for a file, a pipe or a ticket: no colour, nothing cut, every member.
func Plain(s viewmodel.Screen, ascii bool) string {
	const unlimited = 400
	t := theme.New(theme.None, ascii)
	f := frame{Screen: &s, theme: &t, width: unlimited, height: unlimited}
	f.say(plain(fmt.Sprintf("cluster %s  %s  %s", f.ClusterID, f.Clock, f.From)))
	q := f.Quorum
	f.say(plain(fmt.Sprintf("%s  voters %s/%s up, need %s, can lose %s  leader %s  term %s  commit %s", f.Level, q.Up, q.Voters, q.Needed, q.Spare, f.LeaderName, f.Term, f.Commit)))
	for _, why := range f.Why {
		f.say(plain("  " + why))
	}
	for _, e := range f.Endpoints {
		f.say(plain("  " + e.Endpoint + "  " + e.Text))
	}
	f.sides()
	if len(f.Members) > 0 {
		table := f.layout(unlimited)
		table.columns = slices.DeleteFunc(table.columns, func(c column) bool { return c.graphic })
		f.heads(table)
		for i := range f.Members {
			f.row(table, &f.Members[i], false)
		}
	}
	for _, a := range f.Next {
		f.say(plain("next: " + a.Text + "  " + a.Command))
	}
	var b strings.Builder
	for _, l := range f.lines {
		b.WriteString(strings.TrimRight(l.text, " ") + "\n")
	}
	return b.String()
}
