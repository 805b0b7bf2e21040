// Package viewmodel turns what the API says into what a screen shows, in pure functions.
//
// A State is everything learned from the samples so far: Add folds one in and returns the next State,
// from which lag over time, rates, how long a leader has led, and the events between two looks are
// derived, for the API tells none of them. Build makes a Screen of a State, of what the user chose and
// of the time: text and numbers ready to be drawn, with nothing left to decide but where they stand.
//
// What it promises: what is not known is "?", never 0; old data is never shown as healthy; members that
// disagree about the leader are sides and are never averaged; a row is found by its member's name,
// wherever it is sorted. It reads no clock, starts no goroutine and ranges over no map.
//
// Callers: tui, tui/view, ctl/verbs. Of the daemon it imports daemon/api alone.
package viewmodel
