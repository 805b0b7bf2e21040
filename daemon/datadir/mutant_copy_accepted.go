//go:build mutant_copy_accepted

package datadir

// mutantCopyAccepted: a copied directory starts.
const mutantCopyAccepted = true
