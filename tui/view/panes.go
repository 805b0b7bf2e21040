package view

import (
	"slices"
	"strings"

	"github.com/tidaldb/tidal/tui/theme"
)

// leastEvents is how many lines the events have, their title included, where they are shown at all.
const leastEvents = 4

// panes shares room lines between the members, the events and the advice. The members get what they
// need before the events grow; the advice is short and stays whole.
func (f *frame) panes(room int) {
	heads := 2
	if f.narrow() {
		heads = 1
	}
	advice := f.adviceLines()
	if room-len(advice) < heads+leastEvents+2 {
		advice = nil
	}
	room -= len(advice)
	events := 0
	if room >= heads+leastEvents+4 {
		events = leastEvents
	}
	members := min(heads+max(1, len(f.Members)), room-events)
	f.members(members)
	if events > 0 {
		f.events(room - members)
	}
	f.lines = append(f.lines, advice...)
}

// events draws the newest changes, newest on top, into exactly room lines.
func (f *frame) events(room int) {
	f.rule(f.title("events"), plain(" since "+f.Since))
	end := len(f.lines) + room - 1
	if len(f.Events) == 0 && room > 1 {
		f.say(f.dim(" nothing has changed"))
	}
	member := 1
	for i := range f.Events {
		_, w := clean(f.theme, f.Events[i].Member)
		member = max(member, min(w, 16))
	}
	for _, e := range f.Events {
		if len(f.lines) >= end {
			break
		}
		l := f.line()
		l.text(f.theme.Dim, " "+e.Time+"  ")
		if !f.narrow() {
			l.cell(f.style(e.Severity), e.Severity.String(), 4, false)
			l.text(theme.Style{}, "  ")
		}
		l.cell(theme.Style{}, shorten(f.theme, e.Member, member), min(member, l.room()), false)
		l.text(theme.Style{}, "  "+e.Text)
		f.add(l)
	}
	for len(f.lines) < end {
		f.lines = append(f.lines, drawn{})
	}
}

// adviceLines returns the pane of what to do next; empty while all is well.
func (f *frame) adviceLines() []drawn {
	before := len(f.lines)
	f.next()
	pane := slices.Clone(f.lines[before:])
	f.lines = f.lines[:before]
	return pane
}

func (f *frame) next() {
	if len(f.Next) == 0 || f.narrow() {
		return
	}
	f.rule(f.title("next"))
	for _, a := range f.Next {
		if f.measure([]span{plain(a.Text + a.Command)})+4 <= f.width {
			f.say(plain(" "+a.Text+"  "), span{f.theme.Accent, a.Command})
			continue
		}
		f.say(plain(" " + a.Text))
		f.say(plain("   "), span{f.theme.Accent, a.Command})
	}
}

// labelWidth is the room for the labels of a detail.
const labelWidth = 12

// detail draws what is known of one member into at most room lines.
func (f *frame) detail(room int) {
	end := len(f.lines) + room
	for _, field := range f.Detail {
		for i, part := range wrap(f.theme, field.Value, f.width-labelWidth-3) {
			if len(f.lines) >= end {
				return
			}
			l := f.line()
			l.text(theme.Style{}, " ")
			label := field.Label
			if i > 0 {
				label = ""
			}
			l.cell(f.theme.Dim, label, labelWidth, false)
			l.text(theme.Style{}, " ")
			l.text(f.style(field.Severity), part)
			f.add(l)
		}
	}
}

// wrap breaks a text between words into lines of at most width columns; a word that is wider is cut.
func wrap(t *theme.Theme, text string, width int) []string {
	var lines []string
	current, used := "", 0
	for _, word := range strings.Fields(text) {
		_, w := clean(t, word)
		if used > 0 && used+1+w > width {
			lines, current, used = append(lines, current), "", 0
		}
		if used > 0 {
			current, used = current+" ", used+1
		}
		current, used = current+word, used+w
	}
	return append(lines, current)
}

// columns draws two columns side by side: the panes, and everything about the member at the cursor.
func (f *frame) columns(room int) {
	right := min(72, f.width/3)
	left := f.part(f.width-right-3, func(p *frame) { p.panes(room) })
	detail := f.part(right, func(p *frame) {
		if f.Cursor < 0 {
			return
		}
		p.rule(f.title(f.Members[f.Cursor].Name))
		p.detail(room - 1)
	})
	for i := range room {
		l := f.line()
		if i < len(left) {
			l.finished(left[i])
		}
		l.to(f.width - right - 2)
		l.repeat(f.theme.Dim, f.theme.Pipe, 1)
		l.to(l.used + 1)
		if i < len(detail) {
			l.finished(detail[i])
		}
		f.add(l)
	}
}

// part draws into lines of another width.
func (f *frame) part(width int, draw func(*frame)) []drawn {
	p := frame{Screen: f.Screen, theme: f.theme, width: width, height: f.height}
	draw(&p)
	return p.lines
}
