import { expect, test } from 'vitest';
import { downloadProgress } from './java.ts';

test("the sum of Maven's downloads is reported every few megabytes, wherever its output is cut", () => {
  const told: number[] = [];
  const progress = downloadProgress((megabytes) => told.push(megabytes));
  const output = [
    '[INFO] Downloading from central: https://repo.example/kafka.jar',
    '[INFO] Downloaded from central: https://repo.example/kafka.jar (5.5 MB at 3.2 MB/s)',
    '[INFO] Downloaded from central: https://repo.example/small.jar (900 kB at 3.2 MB/s)',
    '[INFO] Downloaded from central: https://repo.example/zstd.jar (7.1 MB at 3.2 MB/s)',
    '',
  ].join('\n');
  for (let i = 0; i < output.length; i += 7) progress(output.slice(i, i + 7));
  expect(told).toEqual([6, 14]);
});
