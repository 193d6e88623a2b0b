import { expect, test } from 'vitest';
import { backupPlaces, folderIn } from './backup-places.ts';

test('places are folders, disks and buckets, each by its name', () => {
  expect(
    backupPlaces(
      "local=/var/backups/sluice/, disk = Disk('backups') ,s3=S3('https://b.example/x,y', 'k', 'it\\'s, (a) secret'),az=AzureBlobStorage('https://a.example','c','f','n','k')",
    ),
  ).toEqual({
    local: { engine: 'File', args: ['/var/backups/sluice'] },
    disk: { engine: 'Disk', args: ['backups'] },
    s3: { engine: 'S3', args: ['https://b.example/x,y', 'k', "it's, (a) secret"] },
    az: { engine: 'AzureBlobStorage', args: ['https://a.example', 'c', 'f', 'n', 'k'] },
  });
});

test('a backup is a folder of its place', () => {
  const { local, root, disk, deep, s3, az } = backupPlaces(
    "local=/var/b,root=/,disk=Disk('d'),deep=Disk('d','e/'),s3=S3('https://x/y/','k','s'),az=AzureBlobStorage('u','c','f','n','k')",
  );
  expect([local, root, disk, deep, s3, az].map((place) => folderIn(place!, 'monday').args)).toEqual([
    ['/var/b/monday'],
    ['/monday'],
    ['d', 'monday'],
    ['d', 'e/monday'],
    ['https://x/y/monday', 'k', 's'],
    ['u', 'c', 'f/monday', 'n', 'k'],
  ]);
});

test.each([
  'monday',
  '=/x',
  'a b=/x',
  'a=relative',
  "a=S3('x'",
  "a=url('http://x')",
  "a=Disk('x') SETTINGS y",
  'a=Disk(backups)',
  "a=S3('x' || 'y')",
  'a=/x,a=/y',
  "a=S3('u','k','s3cr3t','more')",
  "a=AzureBlobStorage('u')",
  'a=/x,,b=/y',
  "a=Disk('d'); DROP TABLE batches",
])('what is no place is refused, without a word of what may be secret: %s', (value) => {
  expect(() => backupPlaces(value)).toThrow(
    /^(has a (malformed )?place|names a twice|gives (S3|AzureBlobStorage) of a \d arguments)/,
  );
  expect(() => backupPlaces(value)).not.toThrow(/s3cr3t|relative|http:/);
});
