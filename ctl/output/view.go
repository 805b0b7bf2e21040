package output

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/tidaldb/tidal/tui/words"
)

// View is a document for people: a line that says how things stand, lines that say why, and tables.
type View struct {
	// Level is the health that the first line begins with: ok, degraded, critical, unknown. Empty
	// for a document that says nothing of health.
	Level    string
	Headline string

	// Notes are lines below the headline.
	Notes []string

	Sections []Section
}

// Section is one table, with a line above it where there are several.
type Section struct {
	Title   string
	Columns []Column
	Rows    [][]string // each as long as Columns
}

// Column is the head of a column.
type Column struct {
	Title string
	Right bool // numbers stand right

	// Min is the least width, for a table whose rows are printed one after the other.
	Min int
}

// pad fills a cell up to the least width of its column.
func (c Column) pad(cell string) string {
	if c.Right {
		return fmt.Sprintf("%*s", c.Min, cell)
	}
	return fmt.Sprintf("%-*s", c.Min, cell)
}

// gap is the space between two columns.
const gap = "  "

// text renders a view. The parts are separated by an empty line; nothing ends in spaces.
func (p *Printer) text(v View) ([]byte, error) {
	width := 0
	if p.Width != nil {
		width = p.Width()
	}
	var b bytes.Buffer
	if v.Level != "" {
		b.WriteString(p.level(v.Level) + gap)
	}
	if v.Headline != "" {
		b.WriteString(words.Clean(v.Headline, p.ASCII) + "\n")
	}
	for _, note := range v.Notes {
		b.WriteString(gap + words.Clean(note, p.ASCII) + "\n")
	}
	for _, s := range v.Sections {
		if s.Title != "" {
			b.WriteString("\n" + words.Clean(s.Title, p.ASCII) + "\n")
		}
		lines, err := s.lines(!p.NoHeaders)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			b.WriteString(cut(line, width) + "\n")
		}
	}
	return b.Bytes(), nil
}

// level is the word for a level of health, coloured where that is wanted.
func (p *Printer) level(level string) string {
	color := map[string]string{"ok": "32", "degraded": "33", "critical": "1;31", "unknown": "35"}[level]
	level = words.Clean(level, p.ASCII)
	if !p.Color || color == "" {
		return level
	}
	return "\x1b[" + color + "m" + level + "\x1b[0m"
}

// cut shortens an ASCII line to width columns and marks that it did. 0 means no limit.
func cut(line string, width int) string {
	if width <= 0 || len(line) <= width {
		return line
	}
	return line[:width-1] + "~"
}

// lines renders the table: no borders, upper-case heads, ASCII alone; nothing where there are no columns.
func (s Section) lines(heads bool) ([]string, error) {
	if len(s.Columns) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	align := make([]tw.Align, len(s.Columns))
	titles := make([]string, len(s.Columns))
	for i, c := range s.Columns {
		titles[i], align[i] = c.pad(strings.ToUpper(c.Title)), tw.AlignLeft
		if c.Right {
			align[i] = tw.AlignRight
		}
	}
	cells := tw.CellConfig{
		Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off},
		Alignment:  tw.CellAlignment{Global: tw.AlignLeft, PerColumn: align},
		Padding:    tw.CellPadding{Global: tw.Padding{Right: gap, Overwrite: true}},
	}
	t := tablewriter.NewTable(&b,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Symbols:  tw.NewSymbols(tw.StyleNone),
			Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone},
		})),
		tablewriter.WithConfig(tablewriter.Config{Header: cells, Row: cells}),
		tablewriter.WithTrimSpace(tw.Off)) // the padding is meant
	if heads {
		t.Header(titles)
	}
	for i, row := range s.Rows {
		if len(row) != len(s.Columns) {
			return nil, fmt.Errorf("row %d of the table has %d cells, want %d", i, len(row), len(s.Columns))
		}
		clean := make([]string, len(row))
		for j, cell := range row {
			clean[j] = s.Columns[j].pad(words.Clean(cell, true))
		}
		if err := t.Append(clean); err != nil {
			return nil, fmt.Errorf("row %d of the table: %w", i, err)
		}
	}
	if err := t.Render(); err != nil {
		return nil, fmt.Errorf("render the table: %w", err)
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines, nil
}
