package tui

import (
	"testing"
	"time"

	"github.com/tidaldb/tidal/tui/viewmodel"
)

// (choices, key) → (choices, command).
func TestKeys(t *testing.T) {
	now := time.Date(2026, 3, 4, 14, 22, 0, 0, time.UTC)
	rows := []string{"a", "b", "c"}
	on := func(change func(*viewmodel.Choices)) (c viewmodel.Choices) {
		change(&c)
		return c
	}
	for _, tc := range []struct {
		name string
		in   viewmodel.Choices
		key  string
		want viewmodel.Choices
		cmd  command
	}{
		{name: "help", key: "?", want: on(func(c *viewmodel.Choices) { c.Help = true })},
		{name: "help closes", in: on(func(c *viewmodel.Choices) { c.Help = true }), key: "?"},
		{name: "esc closes help", in: on(func(c *viewmodel.Choices) { c.Help, c.Detail = true, true }), key: "esc", want: on(func(c *viewmodel.Choices) { c.Detail = true })},
		{name: "esc closes detail", in: on(func(c *viewmodel.Choices) { c.Detail, c.Filter = true, "x" }), key: "esc", want: on(func(c *viewmodel.Choices) { c.Filter = "x" })},
		{name: "esc clears the filter", in: on(func(c *viewmodel.Choices) { c.Filter = "x" }), key: "esc"},
		{name: "esc never quits", key: "esc"},
		{name: "filter", key: "/", want: on(func(c *viewmodel.Choices) { c.Filtering = true })},
		{name: "q is a letter of a filter", in: on(func(c *viewmodel.Choices) { c.Filtering, c.Filter = true, "e" }), key: "q", want: on(func(c *viewmodel.Choices) { c.Filtering, c.Filter = true, "eq" })},
		{name: "backspace", in: on(func(c *viewmodel.Choices) { c.Filtering, c.Filter = true, "eü" }), key: "backspace", want: on(func(c *viewmodel.Choices) { c.Filtering, c.Filter = true, "e" })},
		{name: "backspace of nothing", in: on(func(c *viewmodel.Choices) { c.Filtering = true }), key: "backspace", want: on(func(c *viewmodel.Choices) { c.Filtering = true })},
		{name: "arrows are no letters", in: on(func(c *viewmodel.Choices) { c.Filtering = true }), key: "up", want: on(func(c *viewmodel.Choices) { c.Filtering = true })},
		{name: "enter keeps the filter", in: on(func(c *viewmodel.Choices) { c.Filtering, c.Filter = true, "e" }), key: "enter", want: on(func(c *viewmodel.Choices) { c.Filter = "e" })},
		{name: "ctrl+c leaves a filter too", in: on(func(c *viewmodel.Choices) { c.Filtering = true }), key: "ctrl+c", want: on(func(c *viewmodel.Choices) { c.Filtering = true }), cmd: interrupt},
		{name: "sort", key: "s", want: on(func(c *viewmodel.Choices) { c.Order = viewmodel.ByName })},
		{name: "sort goes around", in: on(func(c *viewmodel.Choices) { c.Order = viewmodel.ByRole }), key: "s"},
		{name: "down", key: "j", want: on(func(c *viewmodel.Choices) { c.Cursor = "b" })},
		{name: "down at the end", in: on(func(c *viewmodel.Choices) { c.Cursor = "c" }), key: "down", want: on(func(c *viewmodel.Choices) { c.Cursor = "c" })},
		{name: "up from one that is gone", in: on(func(c *viewmodel.Choices) { c.Cursor = "z" }), key: "up", want: on(func(c *viewmodel.Choices) { c.Cursor = "a" })},
		{name: "last", key: "G", want: on(func(c *viewmodel.Choices) { c.Cursor = "c" })},
		{name: "detail stays with its member", key: "enter", want: on(func(c *viewmodel.Choices) { c.Detail, c.Cursor = true, "a" })},
		{name: "unlock", key: "!", want: on(func(c *viewmodel.Choices) { c.UnlockedUntil = now.Add(10 * time.Minute) })},
		{name: "lock again", in: on(func(c *viewmodel.Choices) { c.UnlockedUntil = now.Add(time.Minute) }), key: "!"},
		{name: "unlock after it ran out", in: on(func(c *viewmodel.Choices) { c.UnlockedUntil = now.Add(-time.Minute) }), key: "!", want: on(func(c *viewmodel.Choices) { c.UnlockedUntil = now.Add(10 * time.Minute) })},
		{name: "pause", key: " ", cmd: pause},
		{name: "export", key: "e", cmd: export},
		{name: "look", key: "r", cmd: look},
		{name: "quit", key: "q", cmd: quit},
		{name: "ctrl+c", key: "ctrl+c", cmd: interrupt},
		{name: "repaint", key: "ctrl+l", cmd: repaint},
		{name: "suspend", key: "ctrl+z", cmd: suspend},
		{name: "keys that delete elsewhere do nothing", key: "ctrl+d"},
		{name: "ctrl+k", key: "ctrl+k"},
		{name: "faster is for recordings", key: "+"},
	} {
		got, cmd := onKey(bindings(false), tc.in, tc.key, rows, now)
		if got != tc.want || cmd != tc.cmd {
			t.Errorf("%s: %q gives %+v, %v; want %+v, %v", tc.name, tc.key, got, cmd, tc.want, tc.cmd)
		}
	}
	if _, cmd := onKey(bindings(true), viewmodel.Choices{}, "+", nil, now); cmd != faster {
		t.Errorf("+ of a recording is %v, want faster", cmd)
	}
	if got, _ := onKey(bindings(false), viewmodel.Choices{}, "enter", nil, now); got.Cursor != "" {
		t.Errorf("enter without rows moves the cursor to %q", got.Cursor)
	}
}

// A key stands once in the table, and the help fits the smallest screen that must work.
func TestKeys_TableIsSound(t *testing.T) {
	for _, replay := range []bool{false, true} {
		seen := map[string]bool{}
		for _, b := range bindings(replay) {
			for _, k := range b.keys {
				if seen[k] {
					t.Errorf("%q stands twice", k)
				}
				seen[k] = true
			}
		}
		lines := 0
		for _, topic := range help(bindings(replay)) {
			lines += 1 + len(topic.Lines)
			for _, l := range topic.Lines {
				if len(l) > 80-4 {
					t.Errorf("a line of the help has %d characters: %q", len(l), l)
				}
			}
		}
		if most := 24 - 4 - 2 - 1; lines > most { // header, footer, title
			t.Errorf("the help has %d lines, at most %d fit", lines, most)
		}
	}
}
