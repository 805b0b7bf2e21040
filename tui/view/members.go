package view

import (
	"strconv"

	"github.com/tidaldb/tidal/tui/theme"
	"github.com/tidaldb/tidal/tui/viewmodel"
)

// column is one column of the members.
type column struct {
	title string
	width int
	right bool
	cell  func(*viewmodel.Member) string
	// style is that of a cell; nil means that of the row.
	style func(*frame, *viewmodel.Member) theme.Style
	// drop says in which order columns go where there is no room: the highest first, 0 never.
	drop int
	// graphic says that the cells are drawn and not written.
	graphic bool
}

// leastState is how much room the state must have before other columns go.
const leastState = 14

// table is how the members are laid out at one width.
type table struct {
	columns []column
	gap     string
	// state is where the last column begins; it takes what is left.
	state int
}

func bySeverity(f *frame, m *viewmodel.Member) theme.Style {
	if m.Dim {
		return f.theme.Dim
	}
	return f.style(m.Severity)
}

func byReach(f *frame, m *viewmodel.Member) theme.Style {
	if m.Dim || m.Reach == "ok" {
		return theme.Style{}
	}
	return f.style(m.Severity)
}

func byRole(f *frame, m *viewmodel.Member) theme.Style {
	if m.Leads && !m.Dim {
		return f.theme.Accent
	}
	return theme.Style{}
}

// layout chooses the columns for a width.
func (f *frame) layout(width int) table {
	longest := func(least, most int, cell func(*viewmodel.Member) string) int {
		for i := range f.Members {
			if least >= most {
				return most
			}
			_, w := clean(f.theme, cell(&f.Members[i]))
			least = max(least, w)
		}
		return min(least, most)
	}
	name := func(m *viewmodel.Member) string { return m.Name }
	var t table
	if width < wholeWords {
		t.gap = " "
		t.columns = []column{
			{title: "NODE", width: longest(4, 9, name), cell: name, style: byRole},
			{title: "ROL", width: 3, cell: shortRole, style: byRole},
			{title: "REACH", width: 4, cell: shortReach, style: byReach},
			{title: "LAG", width: 5, right: true, cell: func(m *viewmodel.Member) string { return m.LagShort }},
		}
	} else {
		t.gap = " "
		if width >= largeWidth {
			t.gap = "  "
		}
		role := func(m *viewmodel.Member) string { return m.Role }
		reach := func(m *viewmodel.Member) string { return m.Reach }
		applied := func(m *viewmodel.Member) string { return m.Applied }
		lag := func(m *viewmodel.Member) string { return m.Lag }
		span := 10
		if width >= largeWidth {
			span = 20
		}
		bars := func(m *viewmodel.Member) string { return f.bars(m.Bars(span)) }
		t.columns = []column{
			{title: "NODE", width: longest(4, 20, name), cell: name, style: byRole},
			{title: "ROLE", width: longest(6, 7, role), cell: role, style: byRole},
			{title: "REACH", width: longest(5, 7, reach), cell: reach, style: byReach},
			{title: "RTT", width: 5, right: true, cell: func(m *viewmodel.Member) string { return m.Took }, drop: 7},
			{title: "HEARD", width: 5, right: true, cell: func(m *viewmodel.Member) string { return m.Heard }, drop: 6},
			{title: "APPLIED", width: longest(7, 15, applied), right: true, cell: applied, drop: 2},
			{title: "LAG", width: longest(5, 13, lag), right: true, cell: lag},
			{title: "TIME", width: 6, right: true, cell: func(m *viewmodel.Member) string { return m.Delay }, drop: 3},
			{title: "LAG " + f.LagSpan, width: span, right: true, cell: bars, drop: 4, graphic: true},
			{title: "VERSION", width: longest(7, 12, func(m *viewmodel.Member) string { return m.Version }), cell: func(m *viewmodel.Member) string { return m.Version }, drop: 8},
		}
		if len(f.Sides) > 0 {
			side := column{title: "SIDE", width: 4, cell: func(m *viewmodel.Member) string { return m.Side }}
			t.columns = append(t.columns[:1], append([]column{side}, t.columns[1:]...)...)
		}
	}
	for {
		t.state = 2
		for _, c := range t.columns {
			t.state += c.width + len(t.gap)
		}
		worst := 0
		for i, c := range t.columns {
			if c.drop > t.columns[worst].drop {
				worst = i
			}
		}
		if width-t.state >= leastState || t.columns[worst].drop == 0 {
			return t
		}
		t.columns = append(t.columns[:worst:worst], t.columns[worst+1:]...)
	}
}

// heads is the line above the rows.
func (f *frame) heads(t table) {
	l := f.line()
	l.to(2)
	for _, c := range t.columns {
		l.cell(f.theme.Dim, c.title, c.width, c.right)
		l.text(theme.Style{}, t.gap)
	}
	l.text(f.theme.Dim, "STATE")
	f.add(l)
}

// row is one member. The cursor is a mark, for colour alone would not do.
func (f *frame) row(t table, m *viewmodel.Member, chosen bool) {
	l := f.line()
	base := theme.Style{}
	if chosen {
		l.text(f.theme.Accent, ">")
	}
	l.to(2)
	if m.Dim {
		base = f.theme.Dim
	}
	for i, c := range t.columns {
		style, text := base, c.cell(m)
		if c.style != nil {
			if own := c.style(f, m); own != (theme.Style{}) {
				style = own
			}
		}
		if i == 0 {
			text = shorten(f.theme, text, c.width)
			if chosen {
				style = f.theme.Title
			}
		}
		l.cell(style, text, c.width, c.right)
		l.text(theme.Style{}, t.gap)
	}
	l.text(bySeverity(f, m), m.State)
	f.add(l)
}

func shortRole(m *viewmodel.Member) string {
	switch m.Role {
	case "leader":
		return "LDR"
	case "leader?":
		return "LD?"
	case "voter":
		return "vtr"
	case "learner":
		return "lrn"
	}
	return m.Role
}

func shortReach(m *viewmodel.Member) string {
	if m.Reach == "cut off" {
		return "CUT"
	}
	return m.Reach
}

// members draws the rows that fit into room lines, the cursor among them.
func (f *frame) members(room int) {
	t := f.layout(f.width)
	title := []span{f.title("members " + count(len(f.Members), f.Known))}
	if !f.narrow() {
		about := f.theme.Separator + "sort: " + f.Order
		if f.Filter != "" {
			about += f.theme.Separator + "filter: " + f.Filter
		}
		if f.height < tall && f.Reach != "" {
			about = f.theme.Separator + f.Reach + about
			if f.width >= largeWidth {
				about += f.theme.Separator + f.Slowest
			}
		}
		title = append(title, plain(about))
	}
	f.rule(title...)
	room--
	if !f.narrow() {
		f.heads(t)
		room--
	}
	first := 0
	if len(f.Members) > room {
		first = max(0, min(f.Cursor-room/2, len(f.Members)-room))
	}
	for i := first; i < len(f.Members) && i < first+room; i++ {
		f.row(t, &f.Members[i], i == f.Cursor)
	}
	if len(f.Members) == 0 && room > 0 {
		f.say(f.dim("  no member passes the filter; esc clears it"))
	}
}

func count(shown, known int) string {
	if shown == known {
		return strconv.Itoa(known)
	}
	return strconv.Itoa(shown) + " of " + strconv.Itoa(known)
}
