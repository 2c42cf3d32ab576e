// Package figures writes the tables of measured figures into the pages.
//
// make figures measures a group of figures and saves it as a file, with the commit, the day and the machine. The tables on the pages
// are made of these files, and a test compares both. So a figure on a page always has a source.
package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Folder has a file for each group, below the top folder.
const Folder = "testdata/figures"

// A Set has the figures of one group, as they were measured together.
type Set struct {
	// Commit is the measured one, in short form.
	Commit string `json:"commit"`

	// Date is the day of the measurement, as 2006-01-02.
	Date string `json:"date"`

	// Machine describes it in neutral words.
	Machine string `json:"machine"`

	// Others is the share of the processors that other programs took just before the measurement, from 0 to 1.
	Others float64 `json:"others,omitempty"`

	// Command repeats the measurement. It is empty if somebody measured by hand, since the bench cannot.
	Command string `json:"command,omitempty"`

	// Figures are the medians of all rounds, by name.
	Figures map[string]Figure `json:"figures"`
}

// A Figure is one number with its unit, which is empty for a ratio.
type Figure struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// String rounds to two significant digits, since repeated measurements differ by some percent.
func (f Figure) String() string {
	value, unit := f.Value, f.Unit
	if unit == "B" && value >= 1000 {
		value, unit = value/1000, "KB"
	}
	if unit == "" {
		return rounded(value)
	}
	return rounded(value) + " " + unit
}

// rounded returns a number with two significant digits, and commas between thousands.
func rounded(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 1, 64), 64)
	if err == nil {
		v = short
	}
	digits := 1 - int(math.Floor(math.Log10(math.Abs(v))))
	text := strconv.FormatFloat(v, 'f', max(digits, 0), 64)
	whole, rest, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

// Read reads the file of a group. top is the top folder of the repository.
func Read(top, group string) (Set, error) {
	name := filepath.Join(top, Folder, group+".json")
	data, err := os.ReadFile(name)
	if err != nil {
		return Set{}, fmt.Errorf("figures of %s: %w; measure them with make figures ONLY=%s", group, err, group)
	}
	var s Set
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// Save writes the file of a group. It refuses figures that are no numbers, and a set that lacks a figure of a table.
func Save(top, group string, s Set) error {
	var err error
	for name, f := range s.Figures {
		if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
			err = errors.Join(err, fmt.Errorf("%s: %s: want a number, have %v", group, name, f.Value))
		}
	}
	for _, t := range Tables {
		if t.Group == group {
			_, missing := t.render(s)
			err = errors.Join(err, missing)
		}
	}
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(top, Folder), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(top, Folder, group+".json"), append(data, '\n'), 0o644)
}

// A Table is a table of a page, between <!-- figures: NAME --> and <!-- end of figures -->.
type Table struct {
	Name  string
	Group string   // of its figures
	Head  []string // of the columns
	Rows  [][]string
}

// named finds the names of figures in the cells of a table.
var named = regexp.MustCompile(`\{([^{}]+)\}`)

// render returns the table and a line about its source.
func (t Table) render(s Set) (string, error) {
	var out strings.Builder
	var err error
	write := func(cells []string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	write(t.Head)
	fmt.Fprintf(&out, "|%s\n", strings.Repeat(" --- |", len(t.Head)))
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = named.ReplaceAllStringFunc(cell, func(ref string) string {
				name := strings.Trim(ref, "{}")
				f, found := s.Figures[name]
				if !found {
					err = errors.Join(err, fmt.Errorf("the table %s names %q, which is no figure of %s", t.Name, name, t.Group))
				}
				return f.String()
			})
		}
		write(cells)
	}
	fmt.Fprintf(&out, "\n%s", wrapped(s.source()))
	return out.String(), err
}

// busy is the share of other programs from which on a page mentions them.
const busy = 0.05

// source says where the figures come from.
func (s Set) source() string {
	how := "by hand"
	if s.Command != "" {
		how = "by `" + s.Command + "`"
	}
	text := fmt.Sprintf("Measured at commit %s on %s, on %s, %s.", s.Commit, s.Date, s.Machine, how)
	if s.Others >= busy {
		text += fmt.Sprintf(" Other programs took %.0f %% of the machine.", 100*s.Others)
	}
	return text
}

// wide is how many characters a line of a page has.
const wide = 98

// wrapped breaks text into lines.
func wrapped(text string) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
		case column+1+len(word) > wide:
			out.WriteByte('\n')
			column = 0
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	out.WriteByte('\n')
	return out.String()
}

// marked finds a table on a page. Its groups are the opening mark, the name, and the closing mark.
var marked = regexp.MustCompile(`(?s)(<!-- figures: ([a-z-]+) -->\n).*?(<!-- end of figures -->)`)

// Fill returns a page with the current figures in its tables, and the names of these tables.
func Fill(top, page string) (filled string, names []string, err error) {
	filled = marked.ReplaceAllStringFunc(page, func(old string) string {
		m := marked.FindStringSubmatch(old)
		names = append(names, m[2])
		text, failed := table(top, m[2])
		if failed != nil {
			err = errors.Join(err, failed)
			return old
		}
		return m[1] + "\n" + text + "\n" + m[3]
	})
	if opened := strings.Count(page, "<!-- figures: "); err == nil && opened != len(names) {
		err = fmt.Errorf("want <!-- end of figures --> after each of %d marks, have it for %d", opened, len(names))
	}
	return filled, names, err
}

// table returns the table of a name.
func table(top, name string) (string, error) {
	for _, t := range Tables {
		if t.Name != name {
			continue
		}
		s, err := Read(top, t.Group)
		if err != nil {
			return "", err
		}
		return t.render(s)
	}
	return "", fmt.Errorf("there is no table %s of figures", name)
}

// Pages lists the files that may have tables.
func Pages(top string) ([]string, error) {
	var pages []string
	err := filepath.WalkDir(filepath.Join(top, "docs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "decisions" || d.Name() == "reference") {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	return append(pages, filepath.Join(top, "README.md")), err
}

// WritePages brings the tables of all pages up to date.
func WritePages(top string) error {
	pages, err := Pages(top)
	if err != nil {
		return err
	}
	for _, page := range pages {
		old, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		filled, names, err := Fill(top, string(old))
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if len(names) == 0 || filled == string(old) {
			continue
		}
		if err := os.WriteFile(page, []byte(filled), 0o644); err != nil {
			return err
		}
	}
	return nil
}
