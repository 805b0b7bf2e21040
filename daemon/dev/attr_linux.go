package dev

import "syscall"

// childAttr keeps a terminal's Ctrl-C away from the children, so that dev stops them in order, and
// lets the kernel end them when dev is killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
