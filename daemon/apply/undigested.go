//go:build undigested

package apply

// Undigested has no state digested and none compared: a binary that only a measurement of their cost builds.
const Undigested = true
