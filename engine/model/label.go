package model

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Labels are pairs such as city=berlin by which people find the run of an event. They are sorted by
// name and separated by commas. They are stored as text, because only searches read them.

// These are the bounds of labels.
const (
	maxLabels     = 8
	maxLabelName  = 40 // bytes
	maxLabelValue = 100
)

var labelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

// FormatLabels formats labels. The map may be empty.
func FormatLabels(labels map[string]string) (string, error) {
	if len(labels) > maxLabels {
		return "", fmt.Errorf("want at most %d labels, have %d", maxLabels, len(labels))
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := errors.Join(checkLabelName(name), checkLabelValue(name, labels[name])); err != nil {
			return "", err
		}
		pairs = append(pairs, name+"="+labels[name])
	}
	return strings.Join(pairs, ","), nil
}

// ParseLabels parses labels as people write them: name=value pairs separated by commas.
func ParseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	if text == "" {
		return labels, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if _, twice := labels[name]; twice {
			return nil, fmt.Errorf("want each label once, have %s twice", CleanText(name))
		}
		labels[name] = value
		if !ok {
			return nil, fmt.Errorf("want labels such as city=berlin,vip=yes, have %q", pair)
		}
	}
	_, err := FormatLabels(labels)
	return labels, err
}

// CheckLabelFilter returns an error if a text is not a filter for labels: pairs or names, separated
// by commas.
func CheckLabelFilter(filter string) error {
	if filter == "" {
		return nil
	}
	for part := range strings.SplitSeq(filter, ",") {
		name, value, pair := strings.Cut(part, "=")
		err := checkLabelName(name)
		if pair && err == nil {
			err = checkLabelValue(name, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkLabelName(name string) error {
	if len(name) > maxLabelName || !labelName.MatchString(name) {
		return fmt.Errorf("label %q: want a name of at most %d letters, digits, dots, hyphens, underscores and slashes, "+
			"which begins with a letter or a digit", CleanText(name), maxLabelName)
	}
	return nil
}

func checkLabelValue(name, value string) error {
	if value == "" || len(value) > maxLabelValue || checkText(value) != nil ||
		strings.ContainsFunc(value, func(r rune) bool { return r == ',' || !unicode.IsPrint(r) }) {
		return fmt.Errorf("label %s: want a value of 1 to %d printable bytes without commas, have %q", name, maxLabelValue, CleanText(value))
	}
	return nil
}

// StoredLabels returns labels in the form that stores keep. It contains each of [LabelParts].
func StoredLabels(labels string) string {
	if labels == "" {
		return ""
	}
	return "," + labels + ","
}

// LabelParts lists the texts that [StoredLabels] must contain to match a filter.
func LabelParts(filter string) (parts []string) {
	if filter == "" {
		return nil
	}
	for part := range strings.SplitSeq(filter, ",") {
		if strings.Contains(part, "=") {
			parts = append(parts, ","+part+",")
		} else {
			parts = append(parts, ","+part+"=")
		}
	}
	return parts
}
