//go:build !undigested

package apply

// Undigested is false but in a binary that a measurement builds.
const Undigested = false
