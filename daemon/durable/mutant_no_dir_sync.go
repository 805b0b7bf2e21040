//go:build mutant_no_dir_sync

package durable

// mutantNoDirSync: names are left to the kernel.
const mutantNoDirSync = true
