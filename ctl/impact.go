package ctl

import "github.com/spf13/cobra"

// Impact says what a command can do to a cluster. Every command carries one as an annotation.
type Impact string

// The impacts. Read changes nothing; change can be undone; destroy cannot; fault breaks something
// on purpose, for a time.
const (
	ImpactRead    Impact = "read"
	ImpactChange  Impact = "change"
	ImpactDestroy Impact = "destroy"
	ImpactFault   Impact = "fault"
)

const impactKey = "impact"

// Annotation returns the annotation of a command with impact i.
func (i Impact) Annotation() map[string]string { return map[string]string{impactKey: string(i)} }

// ImpactOf returns the impact of cmd; ok is false when it has none or one that is not known.
func ImpactOf(cmd *cobra.Command) (i Impact, ok bool) {
	i = Impact(cmd.Annotations[impactKey])
	switch i {
	case ImpactRead, ImpactChange, ImpactDestroy, ImpactFault:
		return i, true
	}
	return "", false
}
