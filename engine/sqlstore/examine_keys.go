package sqlstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/engine/store"
)

// keyAge is how old the key for new data may be.
const keyAge = 365 * 24 * time.Hour

// FindKeys reads the document with the keys of a store.
const FindKeys = "select value from documents where kind = '" + store.EncryptionKind + "'"

// ExamineKeys says what the keys of a store are, by their document, which is empty if there is none. Nodes say whether they can open them.
func ExamineKeys(document []byte) store.Check {
	const name = "encryption"
	var have struct {
		Active  string    `json:"active"`
		Stopped time.Time `json:"stopped"`
		Keys    []struct {
			ID      string    `json:"id"`
			Created time.Time `json:"created"`
			KEK     uint32    `json:"key_encryption_key"`
		} `json:"keys"`
	}
	if len(document) > 0 {
		if err := json.Unmarshal(document, &have); err != nil {
			return store.Check{
				Name: name, Level: store.CheckRefused, Found: "the document with the data keys is damaged: " + err.Error(), Remedy: "restore it from a backup",
			}
		}
	}
	if len(have.Keys) == 0 {
		return store.Check{Name: name, Level: store.CheckFine, Found: "not encrypted"}
	}
	const rotate = "procaas store keys rotate"
	var needs []string
	var created time.Time
	for _, k := range have.Keys {
		if kek := fmt.Sprint(k.KEK); !slices.Contains(needs, kek) {
			needs = append(needs, kek)
		}
		if k.ID == have.Active {
			created = k.Created
		}
	}
	c := store.Check{Name: name, Level: store.CheckWarning}
	switch {
	case have.Active == "":
		c.Found = "new data is stored as it is"
		if !have.Stopped.IsZero() {
			c.Found += ", since " + have.Stopped.UTC().Format(time.RFC3339)
		}
		c.Found += fmt.Sprintf(", and old data needs the key-encryption key %s", strings.Join(needs, ", "))
		c.Remedy = rotate + " encrypts new data again; procaas store keys remove ends it for good when nothing is sealed any more"
	case len(needs) > 1:
		c.Found = fmt.Sprintf("the data keys need %d key-encryption keys, %s: a file that lacks one opens only a part", len(needs), strings.Join(needs, ", "))
		c.Remedy = rotate + " encrypts all of them with the newest"
	case time.Since(created) > keyAge:
		c.Found = fmt.Sprintf("new data is sealed with the data key %s, which is from %s", have.Active, created.UTC().Format(time.DateOnly))
		c.Remedy = rotate + " makes a new one"
	default:
		c.Level = store.CheckFine
		c.Found = fmt.Sprintf("new data is sealed with the data key %s, which needs the key-encryption key %s", have.Active, needs[0])
	}
	return c
}
