package outbound

import "net/netip"

// notPublic lists the addresses that do not belong to hosts of the public Internet. IPv6 addresses
// outside 2000::/3 are refused anyway. They have an entry if people know a name for their kind.
var notPublic = []struct {
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by a carrier (CGNAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), loopbackKind},
	{netip.MustParsePrefix("168.63.129.16/32"), "of a cloud's metadata"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, as metadata of clouds is"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "of a relay (6to4)"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for measurements"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},

	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), loopbackKind},
	{netip.MustParsePrefix("64:ff9b::/96"), "translated to IPv4 (NAT64)"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "translated to IPv4 (NAT64)"},
	{netip.MustParsePrefix("2001::/32"), "tunnelled to IPv4 (Teredo)"},
	{netip.MustParsePrefix("2001::/23"), "reserved"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("2002::/16"), "tunnelled to IPv4 (6to4)"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// loopbackKind is the kind of this machine's own addresses.
const loopbackKind = "loopback"

// globalUnicast is the range of IPv6 addresses for hosts of the public Internet.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// NotPublic returns why an address is not public, such as private or link-local, or empty for a
// public one. An IPv4 address inside an IPv6 address counts as the IPv4 address.
func NotPublic(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	for _, n := range notPublic {
		if n.prefix.Contains(a) {
			return n.kind
		}
	}
	if a.Is4() || globalUnicast.Contains(a) {
		return ""
	}
	return "reserved"
}
