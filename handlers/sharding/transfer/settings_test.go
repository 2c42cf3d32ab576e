package transfer_test

import (
	"net/url"
	"testing"

	"procaas/handlers/sharding/transfer"
)

// awkwardSQL adds columns whose texts depend on the session's settings.
const awkwardSQL = `alter table mail add column day date default '2026-12-03', add column took interval default '-1 day 02:03:04',
	add column ratio float8 default pi() / 1e9, add column raw bytea default '\x00ff41', add column note text default U&'gr\00F6\00DFe',
	add column price numeric default 1.50`

// Rows that are written during a move arrive as they are, whatever a database or a role has set for its sessions, and
// in any encoding.
func TestSettingsOfTheShardsChangeNothing(t *testing.T) {
	set := []string{
		"datestyle = 'SQL, DMY'", "intervalstyle = 'sql_standard'", "extra_float_digits = -10", "bytea_output = 'escape'",
		"timezone = 'Asia/Kathmandu'", "client_encoding = 'LATIN1'", "lc_monetary = 'C'", "default_transaction_read_only = on",
		"statement_timeout = '1ms'", "array_nulls = off",
	}
	for name, prepare := range map[string]func(w *world, spec *transfer.Spec){
		"by database": func(w *world, _ *transfer.Spec) {
			for i := range 2 {
				// Writers and checks must not be read-only.
				w.dsn[i] += "&default_transaction_read_only=off&statement_timeout=0"
				for _, s := range set {
					w.exec(i, "alter database "+w.database()+" set "+s)
				}
			}
		},
		"by role": func(w *world, spec *transfer.Spec) {
			for i, dsn := range []*string{&spec.Source, &spec.Target} {
				role := w.database() + "_role"
				w.exec(i, "create role "+role+" superuser login")
				for _, s := range set {
					w.exec(i, "alter role "+role+" set "+s)
				}
				u, err := url.Parse(*dsn)
				if err != nil {
					w.t.Fatal(err)
				}
				u.User = url.User(role)
				*dsn = u.String()
			}
		},
		"LATIN1": func(*world, *transfer.Spec) {},
	} {
		t.Run(name, func(t *testing.T) {
			servers, err := clusters()
			if err != nil {
				t.Fatal(err)
			}
			var options []string
			if name == "LATIN1" {
				options = []string{"encoding 'LATIN1' locale 'C' template template0"}
			}
			w := newWorldOn(t, servers, options...)
			for i := range 2 {
				w.exec(i, awkwardSQL)
			}
			w.fill(40)
			spec := w.spec()
			prepare(w, &spec)
			l := w.write(2)
			l.await(20)
			if _, err := w.transfer(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			l.await(20)
			l.stop()
			l.check()
			w.clean(40)
			if n := w.count(1, `select count(*) from mail where uid = 42 and not (day = '2026-12-03' and
				took = interval '-1 day' + interval '02:03:04' and
				ratio = pi() / 1e9 and raw = '\x00ff41' and note = U&'gr\00F6\00DFe' and price = 1.50)`); n > 0 {
				t.Errorf("%d rows have arrived with other values", n)
			}
		})
	}
}
