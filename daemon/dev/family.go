package dev

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// family is the child processes, one a member. One goroutine a child starts it, waits for it and
// starts it again; stop ends them and waits for the goroutines.
type family struct {
	opts   Options
	config string
	fail   context.CancelCauseFunc // a child that cannot be started ends the whole

	stopping chan struct{}
	done     sync.WaitGroup

	mu struct {
		sync.Mutex
		members []api.DevMember // PID is of the newest process
		stopped bool
	}
}

func newFamily(o Options, config string, members []api.DevMember, fail context.CancelCauseFunc) *family {
	f := &family{opts: o, config: config, fail: fail, stopping: make(chan struct{})}
	f.mu.members = members
	return f
}

// start starts every child once and returns when all have been started, or the first error.
func (f *family) start() error {
	started := make(chan error)
	for i := range f.members() {
		f.done.Go(func() { f.raise(i, started) })
	}
	var first error
	for range f.members() {
		if err := <-started; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// raise keeps child i alive. It owns its thread, because the kernel ends a child with the thread
// that started it: no child outlives a killed parent.
func (f *family) raise(i int, started chan<- error) {
	runtime.LockOSThread()
	cmd, err := f.spawn(i)
	started <- err
	for err == nil {
		exit := f.wait(cmd)
		if f.isStopping() {
			return
		}
		name := f.members()[i].Name
		if !f.opts.Restart {
			fmt.Fprintf(f.opts.Err, "%s ended (%s)\n", name, exit)
			return
		}
		fmt.Fprintf(f.opts.Err, "%s ended (%s), starting it again in %s\n", name, exit, restartDelay)
		select {
		case <-f.stopping:
			return
		case <-time.After(restartDelay):
		}
		if cmd, err = f.spawn(i); err != nil {
			f.fail(fmt.Errorf("start %s again: %w", name, err))
		}
	}
}

func (f *family) spawn(i int) (*exec.Cmd, error) {
	m := f.members()[i]
	log, err := os.OpenFile(f.logPath(m.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", m.Name, err)
	}
	defer log.Close() // the child holds its own descriptor
	cmd := exec.Command(f.opts.Exe, "serve", "--config", f.config, "--name", m.Name, "--data-dir", m.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.stopped {
		return nil, context.Canceled
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", m.Name, err)
	}
	f.mu.members[i].PID = cmd.Process.Pid
	return cmd, nil
}

// wait returns how the child ended. A stop that is under way interrupts it, kindly first.
func (f *family) wait(cmd *exec.Cmd) string {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-f.stopping:
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(stopWithin):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	return cmd.ProcessState.String()
}

// stop ends every child and returns when all have ended.
func (f *family) stop() {
	f.mu.Lock()
	f.mu.stopped = true
	f.mu.Unlock()
	close(f.stopping)
	f.done.Wait()
}

func (f *family) isStopping() bool {
	select {
	case <-f.stopping:
		return true
	default:
		return false
	}
}

func (f *family) members() []api.DevMember {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]api.DevMember(nil), f.mu.members...)
}

func (f *family) logPath(name string) string {
	return filepath.Join(filepath.Dir(f.config), name+".log")
}

// lastWords quotes the end of each child's log, for a start that did not work.
func (f *family) lastWords() string {
	const tail = 400
	words := ""
	for _, m := range f.members() {
		b, err := os.ReadFile(f.logPath(m.Name))
		if err != nil || len(b) == 0 {
			continue
		}
		words += fmt.Sprintf("\n%s said: …%s", m.Name, b[max(0, len(b)-tail):])
	}
	return words
}
