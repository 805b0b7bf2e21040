// Package ctl is the frame of tidalctl: the root command with the flags that every verb has, what
// verbs are given to work with, help, and the one way from an error to words and an exit code.
//
// What a verb may rely on: Run has checked the output format and every other common flag before a
// verb runs; a verb only returns an error, and Run prints it in four parts (what did not happen, why,
// what state that leaves, what to try), or as one line of JSON when JSON was asked for. What a script
// may rely on: the exit codes in exit.go, and that stdout holds data and nothing else.
//
// Callers: ctl/verbs (it does not import them: they are handed to Run), cmd/tidalctl, completions.
// Of the daemon it links daemon/api alone.
package ctl
