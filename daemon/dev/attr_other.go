//go:build !linux

package dev

import "syscall"

// childAttr keeps a terminal's Ctrl-C away from the children, so that dev stops them in order.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
