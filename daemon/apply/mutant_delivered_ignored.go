//go:build mutant_delivered_ignored

package apply

// mutantDeliveredIgnored: what was delivered before is delivered again.
const mutantDeliveredIgnored = true
