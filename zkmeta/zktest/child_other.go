//go:build unix && !linux

package zktest

import "syscall"

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitStopped(int) error { return nil }
