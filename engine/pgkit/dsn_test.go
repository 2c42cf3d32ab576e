package pgkit

import "testing"

func TestPasswordsOfStoresAreNotShown(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://u:c4nary@db/x":                                      "postgres://u@db/x",
		"postgres://u:c4n@ry@db/x":                                      "postgres://u@db/x",
		"postgres://db/x?user=u&password=c4nary&sslpassword=c4nary&a=b": "postgres://db/x?user=u&password=***&sslpassword=***&a=b",
		"postgres://db/x":                                               "postgres://db/x",
		"sqlite:password=1.db":                                          "sqlite:password=1.db",
	} {
		if have := Redact(dsn); have != want {
			t.Errorf("%s: want %s, have %s", dsn, want, have)
		}
	}
}
