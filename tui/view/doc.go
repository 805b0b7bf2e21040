// Package view draws a viewmodel.Screen as text of a given size.
//
// Frame is a pure function of the screen, the size and the theme: the same values give the same bytes.
// It never returns more lines than the height nor a line wider than the width, whatever the size, and
// everything that came from elsewhere is made harmless on the way, in one place (line.text). Only the
// rows that can be seen are drawn, with escape strings that the theme prepared.
//
// The layout is chosen by size: below 40x8 a line that says the most and the names of the members; at
// 40 columns short words; at 60 whole ones; at 160 a second column with everything about one member.
// Plain is the same screen as lines for a file or a ticket.
//
// Callers: tui, ctl/verbs.
package view
