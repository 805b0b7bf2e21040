//go:build !mutant_artifact_cached

package member

const mutantArtifactCached = false // a known bug, for testenv/mutants
