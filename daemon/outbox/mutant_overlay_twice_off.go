//go:build !mutant_overlay_twice

package outbox

const mutantOverlayTwice = false // a known bug, for testenv/mutants
