package sqlstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// TestExamineKeysSaysWhatToDo has documents as package sealed writes them.
func TestExamineKeysSaysWhatToDo(t *testing.T) {
	t.Parallel()
	key := func(id string, age time.Duration, kek int) string {
		return fmt.Sprintf(`{"id": %q, "created": %q, "key_encryption_key": %d}`, id, time.Now().Add(-age).Format(time.RFC3339), kek)
	}
	const year = 366 * 24 * time.Hour
	for _, c := range []struct{ document, level, want string }{
		{"", store.CheckFine, "not encrypted"},
		{`{"keys": []}`, store.CheckFine, "not encrypted"},
		{`{"active": "b", "keys": [` + key("a", year, 7) + "," + key("b", time.Hour, 7) + `]}`, store.CheckFine, "data key b, which needs the key-encryption key 7"},
		{`{"active": "a", "keys": [` + key("a", year, 7) + `]}`, store.CheckWarning, "rotate makes a new one"},
		{`{"active": "b", "keys": [` + key("a", time.Hour, 7) + "," + key("b", time.Hour, 8) + `]}`, store.CheckWarning, "2 key-encryption keys, 7, 8"},
		{`{"stopped": "2026-01-02T03:04:05Z", "keys": [` + key("a", time.Hour, 7) + `]}`, store.CheckWarning, "as it is, since 2026-01-02T03:04:05Z"},
		{`{`, store.CheckRefused, "restore it from a backup"},
	} {
		have := sqlstore.ExamineKeys([]byte(c.document))
		if have.Level != c.level || !strings.Contains(have.Found+have.Remedy, c.want) || (have.Remedy == "") != (c.level == store.CheckFine) {
			t.Errorf("%s: want %s and %q, have %+v", c.document, c.level, c.want, have)
		}
	}
}
