//go:build mutant_overlay_twice

package outbox

// mutantOverlayTwice: what is held is read even where the state holds it too.
const mutantOverlayTwice = true
