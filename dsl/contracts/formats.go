package contracts

import (
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
)

// formats are the formats that contracts check, each with an example. JSON Schema leaves it to the reader whether format is a
// comment. Authors expect a check, so it is one here.
var formats = map[string]string{
	"date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "time": "12:00:00Z", "duration": "P1DT12H",
	"uuid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "email": "ann@example.com", "hostname": "example.com",
	"ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
	"uri": "https://example.com/a", "uri-reference": "/a?b=c", "iri": "https://example.com/ä", "iri-reference": "/ä?b=c",
	"json-pointer": "/a/0", "relative-json-pointer": "1/a", "regex": "^[a-z]+$",
	"period": "2026-01-01T00:00:00Z/P1D", "semver": "1.2.3",
}

// noted are the formats of OpenAPI and of JSON Schema that stay comments. The library's check of uri-template refuses valid ones.
var noted = map[string]bool{
	"int8": true, "int16": true, "int32": true, "int64": true, "uint8": true, "uint16": true, "uint32": true, "uint64": true,
	"float": true, "double": true, "decimal": true, "byte": true, "binary": true, "password": true,
	"uri-template": true, "idn-email": true, "idn-hostname": true,
}

// checkFormat warns of a format that nothing checks.
func checkFormat(v *expr.Value, r *diag.Reporter) {
	name, ok := v.Text()
	if _, checked := formats[name]; !ok || checked || noted[name] {
		return
	}
	r.Warnf(v.Span, rules.Keyword, r.SuggestOr(name, diag.NamesIn(formats), "describe the text by pattern"),
		"the format %q is unknown here, so it is not checked", name)
}
