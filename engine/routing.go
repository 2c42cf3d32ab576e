package engine

// PartitionOf returns the partition of a key, from 0 to partitions-1. It is the same on every node
// and in every language. The 64-bit FNV-1a hash of the key's bytes is mixed by the finisher of
// MurmurHash3 and goes through the jump consistent hash. So a cluster that gets more partitions
// keeps most keys where they are.
//
// There must be at least one partition.
func PartitionOf(key string, partitions int) int {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33

	chosen, next := int64(0), int64(0)
	for next < int64(partitions) {
		chosen = next
		h = h*2862933555777941757 + 1
		next = int64(float64(chosen+1) * (float64(int64(1)<<31) / float64((h>>33)+1)))
	}
	return int(chosen)
}

// These are the headers of requests to the workers of a cluster, and of their answers. A worker
// that does not serve the partition of a request answers 421 with HeaderAssignment, without looking
// at the request.
const (
	HeaderPartition  = "Procaas-Partition"  // of a request: the number of its partition
	HeaderAssignment = "Procaas-Assignment" // the newest version of the assignment that the sender knows
)
