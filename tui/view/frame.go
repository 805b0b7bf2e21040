package view

import (
	"fmt"
	"strings"

	"github.com/tidaldb/tidal/tui/theme"
	"github.com/tidaldb/tidal/tui/viewmodel"
)

// The sizes at which the layout changes.
const (
	leastWidth  = 40
	leastHeight = 8
	wholeWords  = 60
	largeWidth  = 100
	twoColumns  = 160
	roomy       = 16 // lines from which reasons are shown
	tall        = 30 // lines from which nothing has to be left out
)

// Frame draws the screen: at most height lines, none wider than width.
func Frame(s viewmodel.Screen, width, height int, t theme.Theme) string {
	if width <= 0 || height <= 0 {
		return ""
	}
	f := frame{Screen: &s, theme: &t, width: width, height: height}
	if width < leastWidth || height < leastHeight {
		f.tiny()
	} else {
		f.whole()
	}
	var b strings.Builder
	for i, l := range f.lines[:min(len(f.lines), height)] {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(l.text)
	}
	return b.String()
}

// drawn is a finished line.
type drawn struct {
	text  string
	width int // columns
}

// frame is a frame in the making.
type frame struct {
	*viewmodel.Screen
	theme         *theme.Theme
	width, height int
	lines         []drawn
}

func (f *frame) narrow() bool { return f.width < wholeWords }

func (f *frame) line() *line { return &line{width: f.width, theme: f.theme} }

func (f *frame) add(l *line) { f.lines = append(f.lines, drawn{l.b.String(), l.used}) }

// say adds a line of spans.
func (f *frame) say(list ...span) {
	l := f.line()
	l.spans(list)
	f.add(l)
}

// both adds a line with one part to the left and one to the right. What does not fit is cut from the
// right part, for the left one is what a reader meets first.
func (f *frame) both(left, right []span) {
	l := f.line()
	l.spans(left)
	if w := f.measure(right); w > 0 && l.room() > 2 {
		l.to(max(f.width-w-1, l.used+1))
		l.spans(right)
	}
	f.add(l)
}

func (f *frame) measure(list []span) int {
	n := 0
	for _, s := range list {
		_, w := clean(f.theme, s.text)
		n += w
	}
	return n
}

// rule adds a horizontal line with a title in it.
func (f *frame) rule(title ...span) {
	l := f.line()
	if len(title) > 0 {
		l.repeat(f.theme.Dim, f.theme.Rule, 2)
		l.text(theme.Style{}, " ")
		l.spans(title)
		l.text(theme.Style{}, " ")
	}
	l.repeat(f.theme.Dim, f.theme.Rule, l.room())
	f.add(l)
}

func (f *frame) title(text string) span { return span{f.theme.Title, text} }

func (f *frame) dim(text string) span { return span{f.theme.Dim, text} }

// style is that of a severity.
func (f *frame) style(s viewmodel.Severity) theme.Style {
	switch s {
	case viewmodel.Warn:
		return f.theme.Warn
	case viewmodel.Crit:
		return f.theme.Crit
	}
	return theme.Style{}
}

// tiny is for what is hardly a screen: the line that says the most, then the members.
func (f *frame) tiny() {
	f.say(span{f.style(f.LevelSeverity), f.Level}, plain(" "+f.Quorum.Up+"/"+f.Quorum.Voters+" can lose "+f.Quorum.Spare+" "+f.FromShort))
	for i := range f.Members {
		if len(f.lines) >= f.height {
			return
		}
		m := &f.Members[i]
		f.say(plain(m.Name+" "), span{f.style(m.Severity), shortRole(m) + " " + m.Reach}, plain(" "+m.State))
	}
}

// whole is a frame with all its parts: what is at the top and the bottom never goes.
func (f *frame) whole() {
	f.top()
	bottom := 2
	switch body := f.height - len(f.lines) - bottom; {
	case f.ShowHelp:
		f.help()
	case f.Fresh == viewmodel.Connecting:
		f.connecting()
	case f.ShowMore && f.width < twoColumns:
		f.rule(f.title(f.Members[f.Cursor].Name))
		f.detail(body - 1)
	case f.width >= twoColumns:
		f.columns(body)
	default:
		f.panes(body)
	}
	for len(f.lines) < f.height-bottom {
		f.lines = append(f.lines, drawn{})
	}
	f.lines = f.lines[:f.height-bottom]
	f.rule()
	f.bottom()
}

// top is who says what, and the answer to the question that a reader came with.
func (f *frame) top() {
	if f.narrow() {
		f.both([]span{plain(" "), f.title(f.Cluster), plain(" " + lockMark(f.Lock) + f.Mode)},
			[]span{{f.style(f.FromSeverity), f.FromShort}, plain(" " + f.ClockShort)})
		f.say(plain(" "), span{f.style(f.LevelSeverity), f.Level},
			plain(" "+f.Quorum.Up+"/"+f.Quorum.Voters+" voters, "), span{f.style(f.Quorum.Severity), "can lose " + f.Quorum.Spare})
		f.both([]span{plain(" ldr "), {f.theme.Accent, f.LeaderName}, plain(" t" + f.Term)}, []span{plain(f.Rate + " entries/s")})
		return
	}
	f.header()
	f.health()
	f.quorum()
	if f.Silent && f.Fresh != viewmodel.Connecting {
		f.unanswered()
	}
	f.sides()
	if f.height >= roomy && len(f.Why) > 0 {
		f.say(plain(" why "), span{f.style(f.LevelSeverity), strings.Join(f.Why, f.theme.Separator)})
	}
	if f.height >= tall && f.Reach != "" {
		f.say(plain(" reach " + f.Reach + f.theme.Separator + f.Slowest))
	}
}

func lockMark(lock string) string {
	if lock == "locked" {
		return ""
	}
	return "UNLOCKED "
}

func (f *frame) header() {
	sep := f.theme.Separator
	cluster := f.Cluster
	if f.width >= twoColumns {
		cluster = f.ClusterID
	}
	left := []span{plain(" cluster "), f.title(cluster), plain("  "), f.dim(f.Lock)}
	if f.Mode != "" {
		left = append(left, plain("  "), span{f.theme.Accent, f.Mode})
	}
	every := sep + f.Every
	if f.Mode != "" && f.width < largeWidth {
		every = ""
	}
	f.both(left, []span{{f.style(f.FromSeverity), f.From}, plain(every + sep + f.Clock)})
}

func (f *frame) health() {
	q := f.Quorum
	left := []span{plain(" "), {f.style(f.LevelSeverity), f.Level}}
	if f.Was != "" {
		left = append(left, plain("  "+f.Was))
	}
	left = append(left, plain(fmt.Sprintf("  voters %s/%s up, need %s, ", q.Up, q.Voters, q.Needed)), span{f.style(q.Severity), "can lose " + q.Spare})
	right := []span{plain("term " + f.Term + "  commit " + f.Commit)}
	if f.Was != "" && f.width < largeWidth {
		right = nil // what was is not worth a cut line
	}
	f.both(left, right)
}

// maxCells is how many voters a bar has room for.
const maxCells = 9

func (f *frame) quorum() {
	var left []span
	cells := f.Quorum.Cells
	switch {
	case len(cells) == 0:
		left = []span{plain(" quorum ?")}
	case len(cells) > maxCells:
		left = []span{plain(fmt.Sprintf(" quorum %s of %s", f.Quorum.Up, f.Quorum.Voters))}
	default:
		left = []span{plain(" quorum [")}
		for _, v := range cells {
			if v.Up {
				left = append(left, plain(f.theme.Up))
			} else {
				left = append(left, span{f.theme.Crit, f.theme.Down})
			}
		}
		left = append(left, plain("]"))
	}
	if len(f.Quorum.Missing) > 0 && len(cells) <= maxCells && f.width >= largeWidth {
		left = append(left, plain(" without "), span{f.theme.Crit, strings.Join(f.Quorum.Missing, " ")})
	}
	left = append(left, plain("  leader "), span{f.theme.Accent, f.Leader})
	right := []span{plain(f.Rate + " entries/s")}
	if f.width >= largeWidth && len(f.RateBars) > 0 {
		right = append([]span{f.dim(f.bars(f.RateBars) + " ")}, right...)
	}
	f.both(left, right)
}

// bars draws a sparkline; what is not known is a gap.
func (f *frame) bars(levels []int) string {
	var b strings.Builder
	for _, level := range levels {
		if level < 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteString(f.theme.Bars[min(level, theme.Levels-1)])
	}
	return b.String()
}

// unanswered says why there is nothing newer to show.
func (f *frame) unanswered() {
	f.say(plain(" "), span{f.theme.Crit, "No member answers."}, plain(" Below is the last good view. The keys still work."))
	f.endpoints(4)
}

func (f *frame) endpoints(most int) {
	for i, e := range f.Endpoints {
		if i == most {
			f.say(plain(fmt.Sprintf("   and %d more", len(f.Endpoints)-most)))
			return
		}
		l := f.line()
		l.text(theme.Style{}, "   ")
		l.cell(theme.Style{}, shorten(f.theme, e.Endpoint, 32), min(32, l.room()), false)
		l.text(theme.Style{}, "  ")
		l.text(f.style(e.Severity), e.Text)
		f.add(l)
	}
}

// connecting is the body while nothing is known yet.
func (f *frame) connecting() {
	f.rule()
	if f.Silent {
		f.say(plain(" No member answers yet. The cluster is asked again and again; the keys work."))
	} else {
		f.say(plain(" connecting to"))
	}
	f.endpoints(f.height - len(f.lines) - 4)
	f.next()
}

// sides shows a cluster of two minds.
func (f *frame) sides() {
	if len(f.Sides) == 0 {
		return
	}
	f.rule(span{f.theme.Crit, "SPLIT VIEW: members that answer do not agree on a leader"})
	leader := 0
	for _, s := range f.Sides {
		leader = max(leader, f.measure([]span{plain(s.Leader)}))
	}
	for _, s := range f.Sides {
		style := theme.Style{}
		if !s.Quorum {
			style = f.theme.Warn
		}
		l := f.line()
		l.text(theme.Style{}, "   side "+s.Label+"  ")
		l.cell(style, s.Leader, min(leader, l.room()), false)
		l.text(theme.Style{}, "  term "+s.Term+"  commit "+s.Commit+" "+s.Motion+"  "+s.Members)
		f.add(l)
	}
	f.say(plain("   "), f.title(f.Verdict))
	if f.Faults != "" {
		f.say(plain("   " + f.Faults))
	}
}

// bottom is what can be pressed, or what came of the last key.
func (f *frame) bottom() {
	if f.Typing {
		f.say(plain(" /"+f.Filter+"_"), f.dim("   enter keeps it, esc clears it"))
		return
	}
	warn, crit := 0, 0
	for i := range f.Members {
		switch f.Members[i].Severity {
		case viewmodel.Warn:
			warn++
		case viewmodel.Crit:
			crit++
		}
	}
	var right []span
	if warn+crit > 0 {
		right = []span{plain(fmt.Sprintf("%d warn%s%d crit", warn, f.theme.Separator, crit))}
		if f.narrow() {
			right = []span{plain(fmt.Sprintf("%dw %dc", warn, crit))}
		}
	}
	left := []span{plain(" ")}
	if f.Message != "" {
		f.both(append(left, f.title(f.Message)), nil)
		return
	}
	room := f.width - f.measure(right) - 3
	for _, k := range f.Keys {
		text := k.Key + " " + k.Word + "  "
		if f.narrow() {
			text = k.Key + " "
		}
		if f.measure(left)+len(text) > room {
			break
		}
		left = append(left, plain(text))
	}
	f.both(left, right)
}

// help explains the keys and the signs. What does not fit is cut below.
func (f *frame) help() {
	f.rule(f.title("help"))
	for _, topic := range f.Help {
		f.say(plain(" "), f.title(topic.Title))
		for _, text := range topic.Lines {
			f.say(plain("   " + text))
		}
	}
}
