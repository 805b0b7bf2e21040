package tui

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/tidaldb/tidal/tui/theme"
	"github.com/tidaldb/tidal/tui/view"
	"github.com/tidaldb/tidal/tui/viewmodel"
)

// exported is a view as a file: what was known, and how it looked.
type exported struct {
	Schema string           `json:"schema"`
	At     time.Time        `json:"at"`
	Sample viewmodel.Sample `json:"sample"`
	Frame  []string         `json:"frame"`
}

// export writes the view to a new file of the working directory. The frame has no colours: it is
// meant for a ticket.
func (m model) export() tea.Cmd {
	frame := view.Frame(m.screen, m.width, m.height, theme.New(theme.None, m.opts.Theme.ASCII))
	doc := exported{"tidalctl.frame/v1", m.now.UTC(), m.shown().Good(), strings.Split(frame, "\n")}
	dir := m.opts.ExportDir
	return m.do(func(context.Context) tea.Msg {
		path, err := writeExport(dir, doc)
		return exportedMsg{path, err}
	})
}

// writeExport writes doc to a file that did not exist. A view that was exported in the same
// millisecond before is an error, not overwritten.
func writeExport(dir string, doc exported) (string, error) {
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the view: %w", err)
	}
	path := filepath.Join(dir, "tidalctl-top-"+doc.At.Format("20060102T150405.000Z")+".json")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(b, '\n'))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return path, err
}
