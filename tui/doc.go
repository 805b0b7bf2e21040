// Package tui is the full-screen view of a cluster: the bubbletea model behind `tidalctl top`.
//
// The model is a value that only Update changes. Asking a member, waiting and writing a file are
// commands, so a network that hangs never stops a key; View turns the state into text through
// viewmodel.Build and view.Frame and does nothing else. Which key does what is one table, keys.go.
//
// What it promises: it begins without any member answering and ends only when it is told to; nothing
// here changes a cluster; when Run returns, however it came to that (a key, the end of the context, a
// panic in a command, in Update or in View), the terminal is as it was and no command is left running.
//
// Callers: ctl/verbs. It imports nothing of ctl and nothing of the daemon.
package tui
