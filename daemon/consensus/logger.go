package consensus

import (
	"context"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
)

// raftLogger writes raft's lines. Only its errors are for an operator's eyes: what else is worth a
// line, a change of role, the driver logs from Effects. Panic and Fatal panic; Step catches them.
type raftLogger struct{ log *slog.Logger }

var _ raft.Logger = raftLogger{}

func (l raftLogger) print(level slog.Level, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "raft", slog.String("line", fmt.Sprint(v...)))
	}
}

func (l raftLogger) printf(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "raft", slog.String("line", fmt.Sprintf(format, v...)))
	}
}

func (l raftLogger) Debug(v ...any)                   { l.print(slog.LevelDebug, v) }
func (l raftLogger) Debugf(format string, v ...any)   { l.printf(slog.LevelDebug, format, v) }
func (l raftLogger) Info(v ...any)                    { l.print(slog.LevelDebug, v) }
func (l raftLogger) Infof(format string, v ...any)    { l.printf(slog.LevelDebug, format, v) }
func (l raftLogger) Warning(v ...any)                 { l.print(slog.LevelDebug, v) }
func (l raftLogger) Warningf(format string, v ...any) { l.printf(slog.LevelDebug, format, v) }
func (l raftLogger) Error(v ...any)                   { l.print(slog.LevelWarn, v) }
func (l raftLogger) Errorf(format string, v ...any)   { l.printf(slog.LevelWarn, format, v) }

func (l raftLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l raftLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
