import { testFaults } from './faults.ts';

// Guarantee: two replicas of one shard lose and double nothing while Keeper is killed, the connection between them is
// cut, or an empty replica joins.

testFaults(1);
