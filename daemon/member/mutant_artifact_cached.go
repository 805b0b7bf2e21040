//go:build mutant_artifact_cached

package member

// mutantArtifactCached: a member that may have forgotten what it acknowledged takes any artifact.
const mutantArtifactCached = true
