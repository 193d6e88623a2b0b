import { testFaults } from '../cluster/faults.ts';

// Guarantee: two shards of two replicas lose and double nothing while Keeper is killed, the connection between replicas
// is cut, or an empty replica joins.

testFaults(2);
