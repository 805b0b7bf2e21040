//go:build !linux

package nice

func lower() {}
