package sealed

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tink-crypto/tink-go/v2/tink"
)

// mark begins each sealed value. The id of its data key and a colon follow.
const mark = "sealed:"

// errNoKey reports that a value was sealed with a data key of the store that the file has no key for. Other nodes may have it.
var errNoKey = errors.New("the data key is not there")

var encoding = base64.RawStdEncoding

// place names where a value is, for its associated data. No part but the last may contain U+0000.
func place(parts ...string) string { return strings.Join(parts, "\x00") }

// bytes seals a value of any form. An empty one stays empty.
func (k *keys) bytes(plain []byte, at string) ([]byte, error) {
	if k.active == nil || len(plain) == 0 {
		return plain, nil
	}
	secret, err := k.active.Encrypt(plain, []byte(at))
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return append([]byte(mark+k.state.Active+":"), secret...), nil
}

// text seals a text as a text without characters that JSON or SQL escape.
func (k *keys) text(plain, at string) (string, error) {
	if k.active == nil || plain == "" {
		return plain, nil
	}
	secret, err := k.active.Encrypt([]byte(plain), []byte(at))
	if err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	return mark + k.state.Active + ":" + encoding.EncodeToString(secret), nil
}

// json seals a JSON value as a JSON string. Null stays.
func (k *keys) json(plain json.RawMessage, at string) (json.RawMessage, error) {
	if k.active == nil || len(plain) == 0 || string(plain) == "null" {
		return plain, nil
	}
	text, err := k.text(string(plain), at)
	return json.RawMessage(`"` + text + `"`), err
}

// split returns the id of the data key of a sealed value, and what it has sealed.
func split[T string | []byte](value T) (id string, secret T, ok bool) {
	if len(value) < len(mark)+idLength+1 || string(value[:len(mark)]) != mark || value[len(mark)+idLength] != ':' {
		return "", value, false
	}
	return string(value[len(mark) : len(mark)+idLength]), value[len(mark)+idLength+1:], true
}

// openBytes opens what bytes has sealed. Other values pass.
func (v *Vault) openBytes(ctx context.Context, value []byte, at string) ([]byte, error) {
	id, secret, ok := split(value)
	if !ok {
		return value, nil
	}
	return v.open(ctx, id, secret, at)
}

// openText opens what text has sealed. Other texts pass.
func (v *Vault) openText(ctx context.Context, value, at string) (string, error) {
	id, secret, ok := split(value)
	if !ok {
		return value, nil
	}
	data, err := encoding.DecodeString(secret)
	if err != nil {
		return "", fmt.Errorf("sealed with data key %s: %w", id, err)
	}
	data, err = v.open(ctx, id, data, at)
	return string(data), err
}

// openJSON opens what json has sealed. Other values pass.
func (v *Vault) openJSON(ctx context.Context, value json.RawMessage, at string) (json.RawMessage, error) {
	if !bytes.HasPrefix(value, []byte(`"`+mark)) {
		return value, nil
	}
	text, err := v.openText(ctx, string(value[1:len(value)-1]), at)
	if err != nil {
		return nil, err
	}
	if text == string(value[1:len(value)-1]) {
		return value, nil
	}
	return json.RawMessage(text), nil
}

// openError opens a text for people. Where it cannot, it says so instead.
func (v *Vault) openError(ctx context.Context, text *string, at string) {
	plain, err := v.openText(ctx, *text, at)
	if err != nil {
		plain = "(the sealed text cannot be read: " + err.Error() + ")"
	}
	*text = plain
}

// open opens a sealed value. The error is errNoKey if its key is missing. Other errors say that the value is damaged, or was moved
// here from another place.
func (v *Vault) open(ctx context.Context, id string, secret []byte, at string) ([]byte, error) {
	key, err := v.key(ctx, id)
	if err != nil {
		return nil, err
	}
	plain, err := key.Decrypt(secret, []byte(at))
	if err != nil {
		return nil, fmt.Errorf("sealed with data key %s, and changed since, or moved here from another place: %w", id, err)
	}
	return plain, nil
}

// key returns a data key. One that is new to this process is read from the store.
func (v *Vault) key(ctx context.Context, id string) (tink.AEAD, error) {
	if key := v.have.Load().byID[id]; key != nil {
		return key, nil
	}
	k, err := v.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	if key := k.byID[id]; key != nil {
		return key, nil
	}
	if !k.listed[id] {
		return nil, fmt.Errorf("it looks sealed with data key %s, which the store does not have", id)
	}
	return nil, fmt.Errorf("%w: %s; procaas store keys list shows the data keys of the store", errNoKey, id)
}
