package tui

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidaldb/tidal/tui/viewmodel"
)

// unlockFor is how long actions stay allowed.
const unlockFor = 10 * time.Minute

// command is what a key asks of the model beyond the choices.
type command int

const (
	none command = iota
	quit
	interrupt
	look    // ask now
	export  // write the frame to a file
	pause   // freeze the screen, or let it go on
	repaint // draw everything anew
	suspend
	faster // replay alone
	slower
)

// binding is one row of the table of keys.
type binding struct {
	keys  []string // as bubbletea names them; the first is shown
	shown string   // empty: keys[0]
	word  string   // in the footer; empty: only in the help
	does  string
	do    func(*press)
}

// press is one key on its way through the table.
type press struct {
	viewmodel.Choices
	rows []string // names of the members, as they stand
	now  time.Time
	out  command
}

// bindings returns the table, the most useful first: the footer shows as many as it has room for.
// replay adds what a recording understands.
func bindings(replay bool) []binding {
	table := []binding{
		{keys: []string{"?", "f1"}, word: "help", does: "this help", do: func(p *press) { p.Help = !p.Help }},
		{keys: []string{"/"}, word: "filter", does: "only members that match; !text: that do not", do: func(p *press) { p.Filtering = true }},
		{keys: []string{"enter"}, word: "detail", does: "everything about the member at >", do: func(p *press) {
			p.move(0)
			p.Detail = !p.Detail
		}},
		{keys: []string{"s"}, word: "sort", does: "by severity, name, lag, role", do: func(p *press) { p.Order = p.Order.Next() }},
		{keys: []string{" "}, shown: "space", word: "pause", does: "freeze the screen; looking goes on", do: func(p *press) { p.out = pause }},
		{keys: []string{"e"}, word: "export", does: "write this view to a file", do: func(p *press) { p.out = export }},
		{keys: []string{"q"}, word: "quit", does: "leave", do: func(p *press) { p.out = quit }},
		{keys: []string{"!"}, word: "unlock", does: "allow actions for 10 minutes", do: func(p *press) {
			if p.UnlockedUntil.After(p.now) {
				p.UnlockedUntil = time.Time{}
			} else {
				p.UnlockedUntil = p.now.Add(unlockFor)
			}
		}},
		{keys: []string{"r"}, does: "look now", do: func(p *press) { p.out = look }},
		{keys: []string{"up", "k"}, shown: "up k", does: "the member above", do: func(p *press) { p.move(-1) }},
		{keys: []string{"down", "j"}, shown: "down j", does: "the member below", do: func(p *press) { p.move(1) }},
		{keys: []string{"pgup"}, does: "ten up", do: func(p *press) { p.move(-10) }},
		{keys: []string{"pgdown"}, does: "ten down", do: func(p *press) { p.move(10) }},
		{keys: []string{"g", "home"}, does: "the first", do: func(p *press) { p.move(-len(p.rows)) }},
		{keys: []string{"G", "end"}, does: "the last", do: func(p *press) { p.move(len(p.rows)) }},
		{keys: []string{"esc"}, does: "back; never quits", do: func(p *press) { p.back() }},
		{keys: []string{"ctrl+l"}, does: "draw anew", do: func(p *press) { p.out = repaint }},
		{keys: []string{"ctrl+z"}, does: "suspend", do: func(p *press) { p.out = suspend }},
		{keys: []string{"ctrl+c"}, does: "leave at once", do: func(p *press) { p.out = interrupt }},
	}
	if replay {
		table = slices.DeleteFunc(table, func(b binding) bool { return b.keys[0] == "!" || b.keys[0] == "r" })
		table = append(table,
			binding{keys: []string{"+", "="}, word: "faster", does: "play twice as fast", do: func(p *press) { p.out = faster }},
			binding{keys: []string{"-"}, word: "slower", does: "play half as fast", do: func(p *press) { p.out = slower }})
	}
	return table
}

// onKey returns the choices after a key, and what else it asks for. A key that means nothing changes
// nothing.
func onKey(table []binding, c viewmodel.Choices, key string, rows []string, now time.Time) (viewmodel.Choices, command) {
	p := press{Choices: c, rows: rows, now: now}
	if c.Filtering && key != "ctrl+c" {
		p.typed(key)
		return p.Choices, none
	}
	for _, b := range table {
		if slices.Contains(b.keys, key) {
			b.do(&p)
			break
		}
	}
	return p.Choices, p.out
}

// maxFilter is how long a filter may be.
const maxFilter = 64

// typed edits the filter.
func (p *press) typed(key string) {
	switch key {
	case "enter":
		p.Filtering = false
	case "esc":
		p.Filtering, p.Filter = false, ""
	case "backspace", "ctrl+h":
		_, n := utf8.DecodeLastRuneInString(p.Filter)
		p.Filter = p.Filter[:len(p.Filter)-n]
	case "ctrl+u":
		p.Filter = ""
	default:
		if utf8.RuneCountInString(key) == 1 && len(p.Filter) < maxFilter { // other keys have longer names
			p.Filter += key
		}
	}
}

// back undoes the newest thing that hides another.
func (p *press) back() {
	switch {
	case p.Help:
		p.Help = false
	case p.Detail:
		p.Detail = false
	default:
		p.Filter = ""
	}
}

// move moves the cursor. It is kept as a name: the row of a member may move, the cursor stays with it.
func (p *press) move(by int) {
	if len(p.rows) == 0 {
		return
	}
	at := max(0, slices.Index(p.rows, p.Cursor))
	p.Cursor = p.rows[min(max(0, at+by), len(p.rows)-1)]
}

// footer lists the keys that the last line offers now.
func footer(table []binding, c viewmodel.Choices) []viewmodel.Key {
	var keys []viewmodel.Key
	for _, b := range table {
		word := b.word
		switch {
		case word == "":
			continue
		case b.keys[0] == "?" && c.Help, b.keys[0] == "enter" && c.Detail:
			word = "close"
		case b.keys[0] == "!" && !c.UnlockedUntil.IsZero():
			word = "lock"
		case b.keys[0] == " " && !c.PausedAt.IsZero():
			word = "go on"
		}
		keys = append(keys, viewmodel.Key{Key: b.name(), Word: word, Does: b.does})
	}
	return keys
}

func (b binding) name() string {
	if b.shown != "" {
		return b.shown
	}
	return b.keys[0]
}

// help is the help, made of the table.
func help(table []binding) []viewmodel.Topic {
	half := (len(table) + 1) / 2
	keys := make([]string, half)
	for i := range half {
		keys[i] = entry(table[i])
		if j := half + i; j < len(table) {
			keys[i] += strings.Repeat(" ", max(1, 44-len(keys[i]))) + entry(table[j])
		}
	}
	return []viewmodel.Topic{{Title: "keys", Lines: keys}, {Title: "signs", Lines: []string{
		"? not known   ~ old, or of another side   <=9 at worst   >5m at least",
		"TIME how long ago the leader's log had what the member has applied",
		"LAG bars: one level for each power of ten, the same for every row",
		"RTT the answer to the observer   HEARD since word from the leader",
	}}}
}

func entry(b binding) string {
	return b.name() + strings.Repeat(" ", max(1, 8-len(b.name()))) + b.does
}
