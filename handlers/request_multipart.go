package handlers

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// content returns the bytes of a part, and their type. The bytes are nil for a part to leave out.
func (p *Part) content(s *secrets) (data []byte, contentType string, err error) {
	switch {
	case p.Base64 != nil:
		data, err := base64.StdEncoding.DecodeString(*p.Base64)
		if err != nil {
			return nil, "", fmt.Errorf("base64: want text in base64, have none: %w", err)
		}
		return append([]byte{}, data...), "application/octet-stream", nil
	case p.JSON != nil:
		open, err := s.reveal(p.JSON)
		if err != nil {
			return nil, "", fmt.Errorf("json: %w", err)
		}
		data, err := datum.FormatJSON(open)
		if err != nil {
			return nil, "", fmt.Errorf("json: %w", err)
		}
		return data, "application/json", nil
	case p.Text != nil:
		open, err := s.reveal(p.Text)
		if err != nil || open == nil {
			return nil, "", err
		}
		text, err := scalar(open)
		if err != nil {
			return nil, "", fmt.Errorf("text: %w", err)
		}
		return []byte(text), "text/plain; charset=utf-8", nil
	}
	return nil, "", nil
}

// header describes a part. Quotes and line breaks in names must not end them.
func (p *Part) header(contentType string) (textproto.MIMEHeader, error) {
	if p.ContentType != "" {
		contentType = p.ContentType
	}
	if hasControls(contentType) {
		return nil, errors.New("content-type: control characters are not allowed")
	}
	if hasControls(p.Name) || hasControls(p.FileName) {
		return nil, errors.New("name and file-name: control characters are not allowed")
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `%22`)
	disposition := `form-data; name="` + quote.Replace(p.Name) + `"`
	if p.FileName != "" {
		disposition += `; filename="` + quote.Replace(p.FileName) + `"`
	}
	return textproto.MIMEHeader{"Content-Disposition": {disposition}, "Content-Type": {contentType}}, nil
}

// encodeParts returns a multipart body and its type. The boundary comes from the parts, so that every attempt sends the same bytes.
func encodeParts(parts []Part, s *secrets) (text, contentType string, err error) {
	var b bytes.Buffer
	if err := writeParts(&b, strings.Repeat("-", 32), parts, s); err != nil {
		return "", "", err
	}
	boundary := fmt.Sprintf("%x", sha256.Sum256(b.Bytes()))[:32]
	b.Reset()
	if err := writeParts(&b, boundary, parts, s); err != nil {
		return "", "", err
	}
	return b.String(), mime.FormatMediaType("multipart/form-data", map[string]string{"boundary": boundary}), nil
}

func writeParts(b *bytes.Buffer, boundary string, parts []Part, s *secrets) error {
	w := multipart.NewWriter(b)
	if err := w.SetBoundary(boundary); err != nil {
		return err
	}
	for i := range parts {
		p := &parts[i]
		data, contentType, err := p.content(s)
		if err == nil && data == nil {
			continue
		}
		var header textproto.MIMEHeader
		if err == nil {
			header, err = p.header(contentType)
		}
		if err != nil {
			return fmt.Errorf("multipart: part %s: %w", p.Name, err)
		}
		to, err := w.CreatePart(header)
		if err != nil {
			return err
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
	return w.Close()
}

// checkParts checks what the tags of [Part] cannot express.
func checkParts(b *tree.Body) {
	parts := b.Field("multipart")
	if parts == nil || parts.Kind != expr.ValueList {
		return
	}
	for _, p := range parts.Elems {
		if p.Expr() != nil {
			continue
		}
		var given []*expr.Value
		for _, name := range []string{"text", "json", "base64"} {
			if v := p.Get(name); v != nil {
				given = append(given, v)
			}
		}
		switch len(given) {
		case 1:
		case 0:
			b.Errorf(p.Head(), rules.Body, "add text:, json: or base64:", "a part needs one of text, json and base64")
		default:
			b.Errorf(given[1].Span, rules.Body, "keep one of text, json and base64", "a part has one content")
		}
		for _, name := range []string{"name", "base64", "file-name", "content-type"} {
			p.Get(name).Secrets(func(v *expr.Value) {
				b.Errorf(v.Span, rules.Body, "send it in text or json", "%s of a part cannot be a secret", name)
			})
		}
		if text, ok := p.Get("base64").Text(); ok {
			if _, err := base64.StdEncoding.DecodeString(text); err != nil {
				b.Errorf(p.Get("base64").Span, rules.Body, "write text for what is no base64", "want text in base64: %v", err)
			}
		}
	}
	if v := b.Field("content-type"); v != nil {
		b.Errorf(v.Span, rules.Body, "delete it; each part may have a content-type", "the content type of a multipart body says where its parts end")
	}
}
